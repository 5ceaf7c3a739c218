-- verb: add
-- from: new
-- to: waiting or delayed
-- what: or finds the queued job of that identifier, and moves it up or replaces it; finds or creates the queue
-- request
--   job_model, identifier, queue_model, queue_name, priority, delay, fields
--   prepend       '1' to put it first
--   custom        '1' to leave the placing to the caller
--   reserve       '1' to make nothing new, but give a pk
--   reserved_pk   that was given before
--   registry      JSON, to be written, [field, text, a key that must exist, if any]…: what others have to know of the
--                 class and of the queue model
--   replaces      JSON, the names of the fields that the queued job of the identifier loses, if it is to become the one
--                 that would be made; with 'follow ' before it, a new job is made that follows it, if it runs; none to
--                 keep it
-- reply
--   added, existing, moved   {pk}
--   replaced      {pk}
--   running       {pk}: of a job that is not replaced, as it is claimed, or its end is being recorded
--   throttled     {pk}: of a job of the identifier that ended too short a while ago; it may be deleted
--   reserved      {pk}
--   outranked     {pk}: of a job that the caller has to move
--   not unique    {field, value, pk of its owner}

--@include adding
--@include registry

refuse_if_moved(request.registry)
local where = {
  model = model_of(request.queue_model), name = request.queue_name, priority = request.priority,
  due = due_at(request.delay), prepend = request.prepend, custom = request.custom,
  replaces = request.replaces,
}
write_classes(request.registry)
return answer(add(
  model_of(request.job_model), request.identifier, where, request.fields, request.reserve, request.reserved_pk))
