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

--@include canceling

return answer(cancel_job(job_of(request.job_model, request.ident), {
  model = model_of(request.queue_model), name = request.queue_name,
}))
