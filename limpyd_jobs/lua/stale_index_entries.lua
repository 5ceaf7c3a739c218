-- Looks for pks in the plain indexes of a field whose hashes have another value, or removes them.
-- No transition of a job.
--
-- ARGV[1]  model
-- ARGV[2]  field
-- ARGV[3]  beginning of the keys of the index
-- ARGV[4]  '1' to repair, or ''
-- ARGV[5]  the largest set to look at as a whole
-- ARGV[6…] what to look at: value, pk or '' for the whole set…
--
-- {stale, large, wrong}
--   stale  {value, pk}…
--   large   the values whose sets are too large
--   wrong   {value, type}… of the keys that are no sets: deleted to repair

--@include records

local model, field, prefix, repairs, largest = model_of(ARGV[1]), ARGV[2], ARGV[3], ARGV[4] == '1', tonumber(ARGV[5])
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
  elseif redis.call('SCARD', prefix .. value) > largest then
    large[#large + 1] = value
  else
    for _, pk in ipairs(redis.call('SMEMBERS', prefix .. value)) do
      look_at(value, pk)
    end
  end
end

for i = 6, #ARGV, 2 do
  if ARGV[i + 1] == '' then look_at_all(ARGV[i]) else look_at(ARGV[i], ARGV[i + 1]) end
end
return {stale, large, wrong}
