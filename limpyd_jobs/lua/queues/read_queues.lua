-- verb: read queues
-- what: those of some names, with what runs and what waits in them: all of one moment
-- request
--   queue_model
--   names    JSON, a list
--   lapsed   '1' to leave out jobs with a claim whose lease holds
-- reply
--   done   {queues: [pk, name, priority, the idents that run, by the end of their lease, the idents that wait]…}

--@include records
--@include clock

local queue_model, queues = model_of(request.queue_model), {}
local last = request.lapsed and score(now()) or '+inf'

-- A key of a wrong type counts as empty.
local function members(...)
  local found = redis.pcall(...)
  return found.err and {} or found
end

for _, name in ipairs(cjson.decode(request.names)) do
  for _, pk in ipairs(members('SMEMBERS', queue_model.indexes.name[1] .. name)) do
    local base = queue_model.name .. ':' .. pk
    local own_name, priority = unpack(redis.pcall('HMGET', base .. ':hash', 'name', 'priority'))
    if own_name == name then
      queues[#queues + 1] = {
        pk, name, priority or '0', members('ZRANGEBYSCORE', base .. ':_running', '-inf', last),
        members('LRANGE', base .. ':waiting', 0, -1),
      }
    end
  end
end
return answer('done', {queues = queues})
