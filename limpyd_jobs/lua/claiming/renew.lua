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
--   refused    another owner holds the claim, or its lease lapsed, and other jobs have reached a limit of the job: nothing
--              is changed
--   gone

--@include claims

local job, queue = job_of(request.job_model, request.ident), request.queue_key
local token = checked_token(request.token)

local refused = refusal(job, token)
if refused then
  return answer(was_ended_with(job, token) and 'done' or refused)
end

if request.lease and not extend_claim(queue, job, tonumber(request.lease)) then
  return answer('refused')
end
if request.cursor then
  keep_progress(job, request.cursor, request.progress)
end
return answer(claim_of(job).status == STATUSES.CANCELED and 'canceled' or 'done')
