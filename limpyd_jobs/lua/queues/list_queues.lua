-- verb: list queues
-- what: those of some names, in the order of the names, with what stands in them
-- request
--   queue_model
--   names   JSON, a list
-- reply
--   done   {queues: [pk, name, priority, number of waiting jobs, number of delayed jobs, 1 if it is paused or 0]…}

--@include envelope

-- A key of a wrong type counts as empty.
local function count(command, key)
  local number = redis.pcall(command, key)
  return type(number) == 'number' and number or 0
end

local queue_model = cjson.decode(request.queue_model)
local queues = {}
local function is_paused(name)
  return redis.pcall('SISMEMBER', queue_model.name .. ':paused', name) == 1 and 1 or 0
end

for _, name in ipairs(cjson.decode(request.names)) do
  for _, pk in ipairs(redis.pcall('SMEMBERS', queue_model.indexes.name[1] .. name)) do
    local base = queue_model.name .. ':' .. pk
    local own_name, priority = unpack(redis.pcall('HMGET', base .. ':hash', 'name', 'priority'))
    if own_name == name then
      queues[#queues + 1] = {
        pk, name, priority or '', count('LLEN', base .. ':waiting'), count('ZCARD', base .. ':delayed'),
        is_paused(name),
      }
    end
  end
end
return answer('done', {queues = queues})
