-- verb: succeed
-- from: running
-- to: success
-- what: unless its code canceled or delayed it; may claim the next job
--
-- KEYS     waiting lists to claim the next job from; none not to
-- ARGV[1]  job model
-- ARGV[2]  ident
-- ARGV[3]  token of the claim, or '' for a job that nobody claimed
-- ARGV[4]  queue: model name and pk
-- ARGV[5…] the next claim: token, lease, classes, as in claim.lua
--
-- {'done', end, '', reindex, next claim}    as JSON
-- {'canceled'}    {'delayed'}    the status that the job was given while it ran: nothing is changed
-- {'refused'}     somebody else holds the claim: nothing is changed
-- {'gone'}

--@include claims

local job, token, queue = job_of(ARGV[1], ARGV[2]), ARGV[3], ARGV[4]

local status = claim_of(job).status
if status == 'c' then
  return {'canceled'}
elseif status == 'd' then
  return {'delayed'}
end
local refused = refusal(job, token)
if refused then
  return ended_before(job, token, 'done', 5) or refused
end

probe('LLEN', queue .. ':success')
local finish = now_text()
end_claim(queue, job, {status = 's', ['end'] = finish, queued = false}, token)
redis.call('RPUSH', queue .. ':success', job.ident)
return ended('done', finish, '', 5)
