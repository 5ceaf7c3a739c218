-- verb: requeue
-- from: error
-- to: waiting or delayed
-- what: to be run again, its identifier being free; by hand, with all the tries of its retry policy, and its priority
-- request
--   job_model, ident, queue_model, queue_name, delay
--   priority   none for its own, or the one it had before its retry policy changed it
--   restart    '1' to forget how far it was
--   custom     '1' to leave the list or set to the caller
--   registry   see add.lua
-- reply
--   done             {status, priority, delayed_until or ''}
--   not in error
--   already queued   {pk of the queued job of the same identifier}
--   gone

--@include requeueing
--@include registry

refuse_if_moved(request.registry)
write_classes(request.registry)
return answer(requeue_job(job_of(request.job_model, request.ident), {
  model = model_of(request.queue_model), name = request.queue_name, priority = request.priority,
  due = due_at(request.delay), custom = request.custom, restart = request.restart,
}))
