-- verb: renew
-- from: running
-- to: running
-- what: the lease is extended, and how far the job is is kept; once that moves, its rescues count anew
-- request
--   job_model, ident, token, queue_key, cursor, progress
--   lease      none to leave the lease as it is
-- reply
--   done       also if its holder just ended this claim, and has no reply yet
--   canceled   the same, and the job was canceled
--   refused    another owner holds the claim: nothing is changed
--   gone

--@include claims
--@include clock

local job, queue = job_of(request.job_model, request.ident), request.queue_key
local token = checked_token(request.token)

local refused = refusal(job, token)
if refused then
  return answer(was_ended_with(job, token) and 'done' or refused)
end

-- A full Redis refuses ZADD, unless the script has written before: the job must not be taken for lost.
if request.lease and redis.call('ZREM', queue .. ':_running', job.ident) == 1 then
  redis.call('ZADD', queue .. ':_running', score(now() + request.lease * 1000000), job.ident)
end
if request.cursor then
  keep_progress(job, request.cursor, request.progress)
end
return answer(claim_of(job).status == STATUSES.CANCELED and 'canceled' or 'done')
