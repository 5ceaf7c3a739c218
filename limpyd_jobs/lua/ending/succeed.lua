-- verb: succeed
-- from: running
-- to: success or deleted
-- what: unless its code canceled or delayed it; may delete it at once; may claim the next job
-- request
--   job_model, ident, queue_key
--   token
--   unclaimed   '1' instead of a token: for a job that is not claimed
--   erase      '1' to keep nothing of it; 'again' if the request is repeated: then the job may be gone
--   result, kept_for   the result to keep, and for how many milliseconds; or none
--   lists, next_token, lease, classes, registry   the next claim, if any
-- reply
--   done       {end, prefetched}
--   canceled   the job was given this status while it ran: nothing is changed
--   delayed    the same
--   refused    another owner holds the claim: nothing is changed
--   gone

--@include ending
--@include successes

local given = STATUSES.SUCCESS  -- the status that the job gets here is one of these
local job, finish = job_of(request.job_model, request.ident), now_text()
local token = checked_token(request.token, request.unclaimed)

local obstacle = end_in_success(
  job, token, request.queue_key, nil, finish, request.erase, request.result, request.kept_for)
if not obstacle then
  return ended('done', finish)
elseif obstacle == 'gone' and request.erase == 'again' then
  forget_gone(job, request.queue_key)
  return answer('done', {['end'] = finish, prefetched = claim_next(true)})
end
return obstacle == 'refused' and ended_before(job, token, 'done', given) or answer(obstacle)
