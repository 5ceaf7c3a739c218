-- verb: put record
-- what: a record is made, or changed if it still is as it was read
-- KEYS[1]  the leases of timed records: the lease of this one ends, if it belongs to the owner; or none
-- request
--   model, fields   '' for no value
--   pk              of the record
--   is_new          '1' to make it
--   expected        JSON: {field: value, or '' for none}, or none
--   owner           of the lease, or none
--   due_field       the field that says when a record is due, or none
--   replaced_key, replaced_field   of a hash: the new record takes the place of this field, which is deleted; or none
-- reply
--   done
--   existing     there is a record with that pk: nothing is changed
--   gone         there is no such record, or no field to replace
--   changed      one of the expected fields has another value. Only the lease is ended, unless the record is still due
--                when it was
--   empty        no field would have a value any more: nothing is changed
--   not unique   {field, value, pk of its owner}: nothing is changed

--@include leases

local model, pk, fields = model_of(request.model), request.pk, request.fields
local replaced_key, replaced_field = request.replaced_key, request.replaced_field

for field, value in pairs(fields) do
  fields[field] = value ~= '' and value
end
-- Whether a change leaves no field of the record.
local function leaves_nothing()
  for _, value in pairs(fields) do
    if value then return false end
  end
  for _, name in ipairs(redis.call('HKEYS', hash_key(model, pk))) do
    if fields[name] == nil and name ~= 'leased_by' then return false end
  end
  return true
end

if request.is_new and redis.call('EXISTS', hash_key(model, pk)) == 1 then
  return answer('existing')
elseif not request.is_new and is_gone(model, pk) then
  return answer('gone')
elseif replaced_key and redis.call('HEXISTS', replaced_key, replaced_field) == 0 then
  return answer('gone')
elseif not is_as_expected(model, pk, request.expected) then
  end_lease_of_changed(KEYS[1], model, pk, request.owner, request.expected, request.due_field)
  return answer('changed')
elseif not request.is_new and leaves_nothing() then
  return answer('empty')
end
local conflict = not_unique(model, fields, pk)
if conflict then
  return answer('not unique', conflict)
end
if request.is_new then
  create(model, pk, fields)
  if replaced_key then redis.call('HDEL', replaced_key, replaced_field) end
else
  end_lease(KEYS[1], model, pk, request.owner, fields)
end
return answer('done')
