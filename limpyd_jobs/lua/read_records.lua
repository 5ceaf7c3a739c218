-- verb: read records
-- what: returns the fields of some records
-- request
--   model, pks
--   names   JSON, a list: the fields to return, or none for all
-- reply
--   done   {records: [pk, [field, value…]]… of those that exist}

--@include records

local model, names, found = model_of(request.model), cjson.decode(request.names), {}

local function fields_of(pk)
  if #names == 0 then
    return redis.pcall('HGETALL', hash_key(model, pk))
  end
  local values = redis.pcall('HMGET', hash_key(model, pk), unpack(names))
  if values.err then return values end
  local fields = {}
  for i, value in ipairs(values) do
    if value then
      fields[#fields + 1] = names[i]
      fields[#fields + 1] = value
    end
  end
  return fields
end

for _, pk in ipairs(cjson.decode(request.pks)) do
  local fields = fields_of(pk)
  if not fields.err and (#fields > 0 or redis.call('EXISTS', hash_key(model, pk)) == 1) then
    found[#found + 1] = {pk, fields}
  end
end
return answer('done', {records = found})
