-- verb: delete queue
-- what: a queue where no job waits, is delayed or runs, with the lists of those that ended; the jobs stay
-- request
--   queue_model, pk
--   audit, unaudited
-- reply
--   deleted
--   gone
--   used      {waiting, delayed, running}: nothing is changed

--@include records
--@include audit

local model = model_of(request.queue_model)
local base = model.name .. ':' .. request.pk

local used = {
  waiting = redis.call('LLEN', base .. ':waiting') + redis.call('ZCARD', base .. ':_parked'), delayed = redis.call('ZCARD', base .. ':delayed'),
  running = redis.call('ZCARD', base .. ':_running'),
}
if used.waiting + used.delayed + used.running > 0 then
  return answer('used', used)
end
if redis.call('EXISTS', hash_key(model, request.pk)) == 1 then
  probe('SCARD', model.name .. ':collection')
  probe_indexes(model, request.pk, all_indexed_unset(model))
  write_entry(request.audit)
  drop_lanes(base)
end
return answer(delete_record(model, request.pk) == 1 and 'deleted' or 'gone')
