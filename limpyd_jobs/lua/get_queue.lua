-- Finds the queue of a name and a priority, or creates it. No transition of a job.
--
-- ARGV[1]  queue model
-- ARGV[2]  name
-- ARGV[3]  priority
-- ARGV[4]  mode: 'create'; 'reserve' makes nothing new, but gives a pk
-- ARGV[5]  pk that was reserved, or ''
-- ARGV[6…] fields of a new queue: field, value…
--
-- {'existing', pk}    {'added', pk, reindex}    {'reserved', pk}    {'not unique', field, value, pk of its owner}

--@include places

local queue_model, name, priority, reserved_pk = model_of(ARGV[1]), ARGV[2], ARGV[3], ARGV[5]

local existing = find_queue(queue_model, name, priority)
if existing then
  return {'existing', existing}
end

local fields = pairs_from(6)
local conflict = not_unique(queue_model, fields)
if conflict then
  return conflict
end

local pk = reserved_pk ~= '' and reserved_pk or new_pk(queue_model)
if ARGV[4] == 'reserve' then
  return {'reserved', pk}
end
fields.name, fields.priority = name, priority
create(queue_model, pk, fields, reserved_pk ~= '')
notify(queue_model.name .. ':_signal:' .. name, true)
return {'added', pk, reindex}
