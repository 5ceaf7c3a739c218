-- verb: cancel
-- from: waiting, delayed or running
-- to: canceled
-- what: at once, out of its queue; a running one is told, and ends as canceled once its code returns
-- request
--   job_model, ident, queue_model
--   queue_name   where a job that does not say so itself most likely stands; or none
-- reply
--   done    also if it is canceled already
--   ended   in success or error: nothing is changed
--   gone

--@include idents
--@include places

local job = job_of(request.job_model, request.ident)

if redis.call('EXISTS', job.key) == 0 then
  return answer('gone')
end

local hash = redis.call('HMGET', job.key, 'status', '_claim_token', 'queued')
local status, is_claimed, is_queued = hash[1], hash[2], hash[3] == '1'

-- Workers of version 2 run jobs without a claim. One that is held in error by its worker may still run again. A failure
-- sets another status, and version 2, with all that was written for it, then puts the job back: the field prevents that.
if is_claimed or status == 'r' then
  update(job.model, job.pk, {status = 'c', cancel_on_error = '1'})
  return answer('done')
elseif status == 's' or status == 'e' then
  return answer('ended')
end

-- The hash first: whatever may be left in a queue is only a hint, which workers drop.
update(job.model, job.pk, {status = 'c', queued = false, _rescues = false})
if is_queued then
  unplace(model_of(request.queue_model), request.queue_name or '', job)
end
return answer('done')
