-- verb: read records
-- what: returns the fields of some records
-- request
--   model, pks
--   names   JSON, a list: the fields to return, or none for all
-- reply
--   done   {records: [pk, values]… of those that exist}: the values of the names, false for none; without names, all
--          fields, each with its value

--@include records

local model, names, found = model_of(request.model), cjson.decode(request.names), {}

for _, pk in ipairs(cjson.decode(request.pks)) do
  local key, values = hash_key(model, pk), nil
  if #names > 0 then
    values = redis.pcall('HMGET', key, unpack(names))
  else
    values = redis.pcall('HGETALL', key)
  end
  if not values.err and (values[1] or redis.call('EXISTS', key) == 1) then
    found[#found + 1] = {pk, values}
  end
end
return answer('done', {records = found})
