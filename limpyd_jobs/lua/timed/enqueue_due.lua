-- verb: enqueue due
-- from: new
-- to: waiting or delayed
-- what: as add, for a schedule that is due: once for each time, as its next one is set in the same step
-- KEYS[1]  sorted set of the active schedules, by when they are due
-- request
--   model, pk     of the schedule
--   next_run, trigger, timezone   as the caller read them
--   run           the time that is due, none to pass over it
--   following     the next time, none for never again
--   score         the score of that time
--   job_model, identifier, fields
--   queue_model, queue_name, priority, delay
--   reserve, reserved_pk, registry   see add.lua
-- reply
--   added, existing, moved, throttled   {pk}
--   reserved      {pk}
--   outranked     never, as the job is always placed here
--   replaced, running   never, as no schedule replaces a queued job
--   not unique    {field, value, pk of its owner}
--   passed over   it was not to be run, and the next time is set
--   not due       another worker was faster, or the schedule was changed: nothing is done

--@include adding
--@include registry

refuse_if_moved(request.registry)
local model, pk = model_of(request.model), request.pk

probe('ZCARD', KEYS[1])
if is_gone(model, pk) then
  redis.call('ZREM', KEYS[1], pk)
  return answer('not due')
end
local next_run, trigger, timezone, paused = unpack(redis.call(
  'HMGET', hash_key(model, pk), 'next_run', 'trigger', 'timezone', 'paused'))
if paused then
  redis.call('ZREM', KEYS[1], pk)
  return answer('not due')
elseif next_run ~= request.next_run or trigger ~= request.trigger or timezone ~= request.timezone then
  return answer('not due')
end

local function advance()
  local changes = {next_run = request.following or false}
  if request.run then
    changes.last_run = request.run
  end
  update(model, pk, changes)
  if changes.next_run then
    redis.call('ZADD', KEYS[1], request.score, pk)
  else
    redis.call('ZREM', KEYS[1], pk)
  end
end

if not request.run then
  advance()
  return answer('passed over')
end
local where = {
  model = model_of(request.queue_model), name = request.queue_name, priority = request.priority,
  due = due_at(request.delay),
}
write_classes(request.registry)
local outcome, reply = add(
  model_of(request.job_model), request.identifier, where, request.fields, request.reserve, request.reserved_pk)
if outcome ~= 'reserved' and outcome ~= 'not unique' then
  advance()
end
return answer(outcome, reply)
