-- verb: cancel
-- from: waiting, delayed or running
-- to: canceled
-- what: at once, out of its queue; a running one is notified, and ends as canceled once its code returns; a worker of several slots notices it at once
-- request
--   job_model, ident, queue_model
--   queue_name   where a job that does not say so itself most likely stands; or none
--   unclaimed    '1' to refuse a running job
-- reply
--   done    also if it is canceled already
--   ended   in success or error: nothing is changed
--   gone
--   claimed   it runs

--@include canceling

local job = job_of(request.job_model, request.ident)
if request.unclaimed and has_holder(job) then
  return answer('claimed')
end
return answer(cancel_job(job, {
  model = model_of(request.queue_model), name = request.queue_name,
}))
