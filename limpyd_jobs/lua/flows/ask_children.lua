-- verb: ask children
-- from: running
-- to: running
-- what: the code of a job asks for what it spawned; if that has not ended, the caller will release the job
-- request
--   job_model, ident, token
--   spawn   the name of that spawn
-- reply
--   done        {flow, policy: if there is one}
--   waits       {flow}
--   not spawned
--   refused     another owner holds the claim: nothing is changed
--   gone

--@include signaling

local job = job_of(request.job_model, request.ident)
local refused = refusal(job, checked_token(request.token))
if refused then return answer(refused) end

local waits, text = unpack(redis.call('HMGET', job.key, '_waits', '_spawned'))
local ok, spawned = pcall(cjson.decode, text or '{}')
local flow = ok and type(spawned) == 'table' and spawned[request.spawn]
if type(flow) ~= 'string' or not string.find(flow, '^%x+$') then return answer('not spawned') end
local what = 'children ' .. flow
local date, since = wait_for(waits, what)
local state, policy = unpack(redis.call('HMGET', FLOW .. flow, 'state', 'policy'))
if state ~= 'running' and state ~= 'held' then
  if date then update(job.model, job.pk, {_waits = false}, claim_of(job)) end
  return answer('done', {flow = flow, policy = policy or nil})
end
since = since or string.format('%d', now() / 1000000)
update(job.model, job.pk, {_waits = LAST_DATE .. '\n' .. what .. '\n' .. since}, claim_of(job))
return answer('waits', {flow = flow})
