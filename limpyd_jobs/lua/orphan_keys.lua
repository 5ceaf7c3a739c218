-- Looks for keys of records that do not exist, or of a wrong type, or deletes them. No transition of a job.
--
-- ARGV[1]  model
-- ARGV[2]  '1' to repair, or ''
-- ARGV[3…] what to look at: key, pk, the type it must have or ''…
--
-- {key, problem, type}…

--@include records

local model, repairs = model_of(ARGV[1]), ARGV[2] == '1'
local found = {}

local function report(key, problem, kind)
  found[#found + 1] = {key, problem, kind}
  if repairs then redis.call('UNLINK', key) end
end

for i = 3, #ARGV, 3 do
  local key, pk, expected = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'none' and redis.call('TYPE', hash_key(model, pk)).ok ~= 'hash' then
    report(key, 'no owner', kind)
  elseif kind ~= 'none' and expected ~= '' and kind ~= expected then
    report(key, 'wrong type', kind)
  end
end
return found
