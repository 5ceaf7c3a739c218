-- verb: renew
-- from: running
-- to: running
-- what: the lease is extended
--
-- ARGV[1]  job model
-- ARGV[2]  ident
-- ARGV[3]  token of the claim
-- ARGV[4]  queue: model name and pk
-- ARGV[5]  lease: seconds
--
-- {'done'}        so it is, too, if this claim was just ended by its holder, who was not told yet
-- {'canceled'}    the same, and somebody canceled the job
-- {'refused'}     somebody else holds the claim: nothing is changed
-- {'gone'}

--@include clock
--@include claims

local job, token, queue, lease = job_of(ARGV[1], ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])

local refused = refusal(job, token)
if refused then
  return was_ended_with(job, token) and {'done'} or refused
end

-- A full Redis refuses ZADD, unless something was written before: the job must not be taken for lost.
if redis.call('ZREM', queue .. ':_running', job.ident) == 1 then
  redis.call('ZADD', queue .. ':_running', score(now() + lease * 1000000), job.ident)
end
if claim_of(job).status == 'c' then
  return {'canceled'}
end
return {'done'}
