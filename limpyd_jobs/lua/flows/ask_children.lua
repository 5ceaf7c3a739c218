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
--   own turn    {flow}: it is held until the flow of this job has ended, or one that spawned that: nothing is changed
--   not spawned
--   refused     another owner holds the claim: nothing is changed
--   gone

--@include signaling

local job = job_of(request.job_model, request.ident)
local refused = refusal(job, checked_token(request.token))
if refused then return answer(refused) end

-- Of how many flows is asked, each of which a job of the next one spawned.
local MOST_SPAWNERS = 100

-- Whether a job is of a flow of a turn, or was spawned by a job of one, and so on.
local function is_within(turn)
  local text = claim_of(job)._flow
  for _ = 1, MOST_SPAWNERS do
    local node = text and parse_flow(text)
    if not node then return false end
    local own_turn, state, spawner = unpack(redis.call('HMGET', FLOW .. node.flow, 'turn', 'state', 'spawner'))
    if own_turn == turn and state ~= 'ended' then return true end
    local job_before = spawner_of(spawner)
    text = job_before and redis.call('HGET', job_before.key, '_flow')
  end
end

local waits, text = unpack(redis.call('HMGET', job.key, '_waits', '_spawned'))
local ok, spawned = pcall(cjson.decode, text or '{}')
local flow = ok and type(spawned) == 'table' and spawned[request.spawn]
if type(flow) ~= 'string' or not string.find(flow, '^%x+$') then return answer('not spawned') end
local what = 'children ' .. flow
local date, since = wait_for(waits, what)
local state, policy, turn = unpack(redis.call('HMGET', FLOW .. flow, 'state', 'policy', 'turn'))
if state ~= 'running' and state ~= 'held' then
  if date then update(job.model, job.pk, {_waits = false}, claim_of(job)) end
  return answer('done', {flow = flow, policy = policy or nil})
end
if state == 'held' and is_within(turn) then return answer('own turn', {flow = flow}) end
update(job.model, job.pk, {_waits = waits_of('', what, since, request.token)}, claim_of(job))
return answer('waits', {flow = flow})
