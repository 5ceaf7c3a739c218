-- verb: add once
-- from: new
-- to: waiting or delayed
-- what: as add, unless that was done for the same token before: then the job is found, whatever became of it
-- KEYS[1]  string: the pk of the job of that token; it expires
-- request
--   job_model, identifier, queue_model, queue_name, priority, delay, fields
--   prepend, custom, reserve, reserved_pk, registry, replaces   see add.lua
-- reply
--   added, existing, moved, replaced, running, throttled   {pk}
--   reserved      {pk}
--   outranked     {pk}: of a job that the caller has to move
--   not unique    {field, value, pk of its owner}

--@include adding
--@include registry

local LIFETIME = 30 * 86400

refuse_if_moved(request.registry)
local job_model, known = model_of(request.job_model), redis.call('GET', KEYS[1])
if known then
  local queued, status = unpack(redis.call('HMGET', hash_key(job_model, known), 'queued', 'status'))
  -- the caller that made the job may have died before it could place it
  local is_unplaced = request.custom and queued and not status
  return answer(is_unplaced and 'added' or 'existing', {pk = known})
end
local where = {
  model = model_of(request.queue_model), name = request.queue_name, priority = request.priority,
  due = due_at(request.delay), prepend = request.prepend, custom = request.custom,
  replaces = request.replaces,
}
write_classes(request.registry)
local outcome, reply = add(job_model, request.identifier, where, request.fields, request.reserve, request.reserved_pk)
if outcome ~= 'reserved' and outcome ~= 'not unique' then
  redis.call('SET', KEYS[1], reply.pk, 'EX', LIFETIME)
end
return answer(outcome, reply)
