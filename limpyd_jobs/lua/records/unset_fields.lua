-- verb: unset fields
-- what: of a record, with their indexes
-- request
--   model, pk
--   names        JSON, a list
-- reply
--   (a number)   of the fields that had a value

--@include records

local model, pk, changes, number = model_of(request.model), request.pk, {}, 0

for _, name in ipairs(cjson.decode(request.names)) do
  if changes[name] == nil then
    number = number + redis.call('HEXISTS', hash_key(model, pk), name)
    changes[name] = false
  end
end
update(model, pk, changes)
return number
