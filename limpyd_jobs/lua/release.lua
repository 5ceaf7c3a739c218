-- verb: release
-- from: running
-- to: waiting
-- what: given back unharmed to the front of its list, the try not counted
--
-- ARGV[1]  job model
-- ARGV[2]  ident
-- ARGV[3]  token of the claim
-- ARGV[4]  queue: model name and pk
--
-- {'done', '', reindex}
-- {'refused'}    somebody else holds the claim, or the job is no longer running: nothing is changed
-- {'gone'}

--@include claims

local job, token, queue = job_of(ARGV[1], ARGV[2]), ARGV[3], ARGV[4]

local refused = refusal(job, token)
if refused then
  return refused
elseif redis.call('HGET', job.key, 'status') ~= 'r' then
  return {'refused'}
end

local tries = (tonumber(redis.call('HGET', job.key, 'tries')) or 0) - 1
update(job.model, job.pk, end_claim(queue, job.ident, {
  status = 'w', start = false, tries = tries > 0 and string.format('%d', tries),
}))
redis.call('LPUSH', queue .. ':waiting', job.ident)
return {'done', '', reindex}
