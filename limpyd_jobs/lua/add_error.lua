-- Creates an error. No transition of a job.
--
-- ARGV[1]  error model
-- ARGV[2]  mode: 'create'; 'reserve' makes nothing, but gives a pk; 'create again' and 'reserve again' look first
--          whether a call before, whose reply was lost, made it
-- ARGV[3]  pk that was reserved, or ''
-- ARGV[4…] fields: field, value…
--
-- {'added', pk, reindex}    {'reserved', pk}    {'not unique', field, value, pk of its owner}
-- {'existing', pk, reindex}    it was made before

--@include records

local error_model, mode, reserved_pk, fields = model_of(ARGV[1]), ARGV[2], ARGV[3], pairs_from(4)

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

local made = string.find(mode, ' again') and made_before()
if made then
  for field in pairs(error_model.special) do
    if fields[field] then reindex[#reindex + 1] = {field, false, fields[field]} end
  end
  return {'existing', made, reindex}
end

local conflict = not_unique(error_model, fields)
if conflict then
  return conflict
end

local pk = reserved_pk ~= '' and reserved_pk or new_pk(error_model)
if string.find(mode, 'reserve') then
  return {'reserved', pk}
end
create(error_model, pk, fields, reserved_pk ~= '')
return {'added', pk, reindex}
