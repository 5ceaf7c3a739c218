-- Looks whether the counter of a model is below its highest pk, or raises it. No transition of a job.
--
-- ARGV[1]  model
-- ARGV[2]  '1' to repair, or ''
-- ARGV[3]  the highest pk
--
-- The counter if it is too low, or what it is if it is no number; nothing if it is high enough.

local key, highest = cjson.decode(ARGV[1]).name .. ':max_pk', tonumber(ARGV[3])
local counter = redis.pcall('GET', key)
local number = type(counter) == 'string' and tonumber(counter)
if number and number >= highest then
  return false
end
if ARGV[2] == '1' then
  redis.call('SET', key, ARGV[3])
end
return type(counter) == 'string' and counter or 'none'
