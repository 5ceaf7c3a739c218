-- verb: add error
-- what: creates an error
-- request
--   error_model, fields
--   again         '1' to look first whether a call before, whose reply was lost, made it
--   reserve, reserved_pk, registry   see add.lua
-- reply
--   added         {pk}
--   reserved      {pk}
--   existing      {pk}: it was made before
--   not unique    {field, value, pk of its owner}

--@include records
--@include registry

local error_model, reserved_pk, fields = model_of(request.error_model), request.reserved_pk, request.fields

local function has_these_fields(pk)
  for field, value in pairs(fields) do
    if redis.call('HGET', hash_key(error_model, pk), field) ~= value then return false end
  end
  return true
end

local function made_before()
  local prefix = (error_model.indexes.job_pk or NOTHING)[1]
  for _, pk in ipairs(prefix and fields.job_pk and redis.call('SMEMBERS', prefix .. fields.job_pk) or NOTHING) do
    if has_these_fields(pk) then return pk end
  end
end

write_classes(request.registry)
local made = request.again and not reserved_pk and made_before()
if made then
  for field in pairs(error_model.special) do
    if fields[field] then reindex[#reindex + 1] = {error_model.name, made, field, false, fields[field]} end
  end
  return answer('existing', {pk = made})
end

local conflict = not_unique(error_model, fields)
if conflict then
  return answer('not unique', conflict)
end

local pk = reserved_pk or new_pk(error_model)
if request.reserve then
  return answer('reserved', {pk = pk})
end
create(error_model, pk, fields, reserved_pk)
return answer('added', {pk = pk})
