-- verb: disown
-- from: running
-- to: the same
-- what: the worker lets go of a job whose state its own hooks took care of
--
-- ARGV[1]  job model
-- ARGV[2]  ident
-- ARGV[3]  token of the claim
-- ARGV[4]  queue: model name and pk
--
-- {'done', '', reindex}
-- {'refused'}    somebody else holds the claim: nothing is changed
-- {'gone'}

--@include claims

local _, pk = parse_ident(ARGV[2])
local job, token, queue = {model = cjson.decode(ARGV[1]), pk = pk, ident = ARGV[2]}, ARGV[3], ARGV[4]

local status = redis.call('HGET', hash_key(job.model, job.pk), 'status')
if redis.call('EXISTS', hash_key(job.model, job.pk)) == 0 then
  redis.call('ZREM', queue .. ':running', job.ident)
  return {'gone'}
elseif fenced_off(job, token) then
  return {'refused'}
end

local changes = end_claim(queue, job.ident, {})
if status == 's' or status == 'e' or status == 'c' then
  changes.queued = false
end
update(job.model, job.pk, changes)
return {'done', '', reindex}
