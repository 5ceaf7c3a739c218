-- verb: finish canceled
-- from: running
-- to: canceled
-- what: its code or another process set the status to canceled while it ran; may claim the next job
-- request
--   job_model, ident, queue_key
--   token
--   unclaimed   '1' instead of a token: for a job that is not claimed
--   cursor, progress
--   lists, next_token, lease, classes, registry   the next claim, if any
-- reply
--   done      {prefetched}
--   refused   another owner holds the claim: nothing is changed
--   gone

--@include ending
--@include cursors

local given = STATUSES.CANCELED  -- the status that the job gets here is one of these
local job, queue = job_of(request.job_model, request.ident), request.queue_key
local token = checked_token(request.token, request.unclaimed)

local refused = refusal(job, token)
if refused then
  return ended_before(job, token, 'done', given) or answer(refused)
end

end_claim(queue, job, keep_cursor({status = STATUSES.CANCELED, queued = false}), token)
return ended('done')
