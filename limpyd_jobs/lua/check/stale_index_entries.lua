-- verb: stale index entries
-- what: looks for pks in the plain indexes of a field whose hashes have another value, or removes them
-- request
--   model, field, repair
--   prefix    beginning of the keys of the index; of a range index, its key
--   range     '1' for a range index: the values of the members are empty, and the scores are not checked
--   largest   the size of the largest set to look at as a whole
--   members   what to look at, as JSON: [value, pk]…, or [value] for the whole set
-- reply
--   done   {stale, large, wrong}
--     stale   {value, pk}…
--     large   the values whose sets are too large
--     wrong   {value, type}… of the keys that are not sets, or not sorted sets: a repair deletes them

--@include records

local model, field, prefix, repairs = model_of(request.model), request.field, request.prefix, request.repair
local stale, large, wrong = {}, {}, {}

local set = {kind = 'set', size = 'SCARD', remove = 'SREM'}
function set.has(key, pk) return redis.call('SISMEMBER', key, pk) == 1 end
function set.members(key) return redis.call('SMEMBERS', key) end
function set.fits(found, value) return found == value end

local range = {kind = 'zset', size = 'ZCARD', remove = 'ZREM'}
function range.has(key, pk) return redis.call('ZSCORE', key, pk) end
function range.members(key) return redis.call('ZRANGE', key, 0, -1) end
function range.fits(found) return type(found) == 'string' end

local index = request.range and range or set

local function look_at(value, pk)
  local found = redis.pcall('HGET', hash_key(model, pk), field)
  if not index.fits(found, value) and index.has(prefix .. value, pk) then
    stale[#stale + 1] = {value, pk}
    if repairs then redis.call(index.remove, prefix .. value, pk) end
  end
end

local function look_at_all(value)
  local kind = redis.call('TYPE', prefix .. value).ok
  if kind == 'none' then
    return
  elseif kind ~= index.kind then
    wrong[#wrong + 1] = {value, kind}
    if repairs then redis.call('UNLINK', prefix .. value) end
  elseif redis.call(index.size, prefix .. value) > tonumber(request.largest) then
    large[#large + 1] = value
  else
    for _, pk in ipairs(index.members(prefix .. value)) do
      look_at(value, pk)
    end
  end
end

for _, member in ipairs(cjson.decode(request.members)) do
  local value, pk = unpack(member)
  if pk then look_at(value, pk) else look_at_all(value) end
end
return answer('done', {stale = stale, large = large, wrong = wrong})
