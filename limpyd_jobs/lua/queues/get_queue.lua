-- verb: get queue
-- what: finds the queue of a name and a priority, or creates it
-- request
--   queue_model, queue_name, priority, fields
--   reserve, reserved_pk, registry   see add.lua
-- reply
--   existing     {pk}
--   added        {pk}
--   reserved     {pk}
--   not unique   {field, value, pk of its owner}

--@include places
--@include registry

local queue_model, name, priority = model_of(request.queue_model), request.queue_name, request.priority

refuse_if_moved(request.registry)
write_classes(request.registry)
local existing = find_queue(queue_model, name, priority)
if existing then
  return answer('existing', {pk = existing})
end

local fields, reserved_pk = request.fields, request.reserved_pk
local conflict = not_unique(queue_model, fields)
if conflict then
  return answer('not unique', conflict)
end

local pk = reserved_pk or new_pk(queue_model)
if request.reserve then
  return answer('reserved', {pk = pk})
end
fields.name, fields.priority = name, priority
create(queue_model, pk, fields, reserved_pk)
notify(queue_model.name .. ':_signal:' .. name, true)
return answer('added', {pk = pk})
