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
-- {'delayed'}    it has to be put in the delayed set: nothing is changed
-- {'refused'}    somebody else holds the claim: nothing is changed
-- {'gone'}

--@include claims

local job, token, queue = job_of(ARGV[1], ARGV[2]), ARGV[3], ARGV[4]

local refused = refusal(job, token)
if refused then
  if not redis.call('HGET', job.key, '_claim_token') then
    redis.call('ZREM', queue .. ':_running', job.ident)
  end
  return refused
end

local changes = {}
local status = redis.call('HGET', job.key, 'status')
if status == 'd' then
  return {'delayed'}
elseif status == 's' or status == 'e' or status == 'c' then
  changes.queued = false
end
end_claim(queue, job, changes)
return {'done', '', reindex}
