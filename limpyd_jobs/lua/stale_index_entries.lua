-- verb: stale index entries
-- what: looks for pks in the plain indexes of a field whose hashes have another value, or removes them
-- request
--   model, field, repair
--   prefix    beginning of the keys of the index
--   largest   set to look at as a whole
--   members   what to look at, as JSON: [value, pk or '' for the whole set]…
-- reply
--   done   {stale, large, wrong}
--     stale   {value, pk}…
--     large   the values whose sets are too large
--     wrong   {value, type}… of the keys that are no sets: deleted to repair

--@include records

local model, field, prefix, repairs = model_of(request.model), request.field, request.prefix, request.repair
local stale, large, wrong = {}, {}, {}

local function look_at(value, pk)
  local key = hash_key(model, pk)
  local found = redis.pcall('HGET', key, field)
  if found ~= value and redis.call('SISMEMBER', prefix .. value, pk) == 1 then
    stale[#stale + 1] = {value, pk}
    if repairs then redis.call('SREM', prefix .. value, pk) end
  end
end

local function look_at_all(value)
  local kind = redis.call('TYPE', prefix .. value).ok
  if kind == 'none' then
    return
  elseif kind ~= 'set' then
    wrong[#wrong + 1] = {value, kind}
    if repairs then redis.call('UNLINK', prefix .. value) end
  elseif redis.call('SCARD', prefix .. value) > tonumber(request.largest) then
    large[#large + 1] = value
  else
    for _, pk in ipairs(redis.call('SMEMBERS', prefix .. value)) do
      look_at(value, pk)
    end
  end
end

for _, member in ipairs(cjson.decode(request.members)) do
  if member[2] == '' then look_at_all(member[1]) else look_at(unpack(member)) end
end
return answer('done', {stale = stale, large = large, wrong = wrong})
