-- Lists the queues of some names, with what stands in them. No transition of a job.
--
-- ARGV[1]  queue model
-- ARGV[2…] names
--
-- {pk, name, priority, number of waiting jobs, number of delayed jobs, 1 if it is paused or 0}… in the order of the names

-- A key of a wrong type counts as empty.
local function count(command, key)
  local number = redis.pcall(command, key)
  return type(number) == 'number' and number or 0
end

local queue_model = cjson.decode(ARGV[1])
local queues = {}
local function is_paused(name)
  return redis.pcall('SISMEMBER', queue_model.name .. ':paused', name) == 1 and 1 or 0
end

for i = 2, #ARGV do
  for _, pk in ipairs(redis.call('SMEMBERS', queue_model.indexes.name[1] .. ARGV[i])) do
    local base = queue_model.name .. ':' .. pk
    local hash = redis.pcall('HMGET', base .. ':hash', 'name', 'priority')
    if hash[1] == ARGV[i] then
      queues[#queues + 1] = {
        pk, hash[1], hash[2] or '', count('LLEN', base .. ':waiting'), count('ZCARD', base .. ':delayed'),
        is_paused(hash[1]),
      }
    end
  end
end
return queues
