-- verb: restore queue
-- what: looks which fields a queue has lost that its indexes still know, or sets them
-- request
--   model, pk, fields, repair
-- reply
--   done   {fields: {field, value}… that are lost; none if it would still have no name}

--@include records

local model, pk, key = model_of(request.model), request.pk, hash_key(model_of(request.model), request.pk)
local is_hash = redis.call('TYPE', key).ok == 'hash'
local found, lost = {}, {}

local function is_missing(field)
  return not is_hash or (redis.call('HGET', key, field) or '') == ''
end

for field, value in pairs(request.fields) do
  if is_missing(field) and redis.call('SISMEMBER', model.indexes[field][1] .. value, pk) == 1 then
    lost[field] = value
    found[#found + 1] = {field, value}
  end
end
if not lost.name and is_missing('name') then found = {} end
if request.repair and #found > 0 then
  if not is_hash then redis.call('UNLINK', key) end
  redis.call('SADD', model.name .. ':collection', pk)
  update(model, pk, lost)
end
return answer('done', {fields = found})
