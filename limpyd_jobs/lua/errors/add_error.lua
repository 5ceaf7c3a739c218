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

--@include errors
--@include registry

local error_model, reserved_pk, fields = model_of(request.error_model), request.reserved_pk, request.fields

write_classes(request.registry)
local made = request.again and not reserved_pk and error_made_before(error_model, fields)
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
