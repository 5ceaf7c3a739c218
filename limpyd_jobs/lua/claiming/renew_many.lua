-- verb: renew many
-- from: running
-- to: running
-- what: as renew, for several claims of a worker
-- request
--   claims    JSON: [ident, token, queue: model name and pk]…
--   lease, classes
-- reply
--   done      {outcomes}: of each, as in renew.lua; or 'failed', if a key is broken: nothing is changed for it

--@include clock
--@include claims

local lease, classes = tonumber(request.lease), classes_from(request.classes)

local function renew(ident, token, queue)
  local job = job_of(classes[parse_ident(ident)], ident)
  local refused = refusal(job, token)
  if refused then
    return was_ended_with(job, token) and 'done' or refused
  end
  -- as in renew.lua: a full Redis refuses ZADD unless the script has written before
  if redis.call('ZREM', queue .. ':_running', job.ident) == 1 then
    redis.call('ZADD', queue .. ':_running', score(now() + lease * 1000000), job.ident)
  end
  return claim_of(job).status == 'c' and 'canceled' or 'done'
end

local outcomes = {}
for i, row in ipairs(cjson.decode(request.claims)) do
  local ok, outcome = pcall(renew, unpack(row))
  outcomes[i] = ok and outcome or 'failed'
end
return answer('done', {outcomes = outcomes})
