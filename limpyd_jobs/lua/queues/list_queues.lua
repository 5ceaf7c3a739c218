-- verb: list queues
-- what: those of some names, in the order of the names, with what stands in them: all of one moment
-- request
--   queue_model
--   names     JSON, a list
--   members   'all' for the idents, too, or 'lapsed', which leaves out jobs with a claim whose lease holds
-- reply
--   done   {queues: [pk, name, priority, number of waiting jobs, number of delayed jobs, 1 if it is paused or 0, then,
--          if asked for: the idents that run, by the end of their lease, the idents that wait]…}

--@include envelope
--@include clock

-- A key of a wrong type counts as empty.
local function count(command, key)
  local number = redis.pcall(command, key)
  return type(number) == 'number' and number or 0
end

local function members(...)
  local found = redis.pcall(...)
  return found.err and {} or found
end

-- Jobs that are parked came before those that are in the list.
local function add_before(idents, parked)
  for i = #idents, 1, -1 do idents[i + #parked] = idents[i] end
  for i, ident in ipairs(parked) do idents[i] = ident end
end

local queue_model, queues = cjson.decode(request.queue_model), {}
local last = request.members == 'lapsed' and score(now()) or '+inf'
local function is_paused(name)
  return redis.pcall('SISMEMBER', queue_model.name .. ':paused', name) == 1 and 1 or 0
end

for _, name in ipairs(cjson.decode(request.names)) do
  for _, pk in ipairs(members('SMEMBERS', queue_model.indexes.name[1] .. name)) do
    local base = queue_model.name .. ':' .. pk
    local own_name, priority, lanes = unpack(redis.pcall('HMGET', base .. ':hash', 'name', 'priority', '_lanes'))
    if own_name == name then
      local parked = lanes and count('ZCARD', base .. ':_parked') or 0
      local queue = {
        pk, name, priority or '', count('LLEN', base .. ':waiting') + parked, count('ZCARD', base .. ':delayed'),
        is_paused(name),
      }
      if request.members then
        queue[7] = members('ZRANGEBYSCORE', base .. ':_running', '-inf', last)
        queue[8] = members('LRANGE', base .. ':waiting', 0, -1)
        if parked > 0 then add_before(queue[8], members('ZRANGE', base .. ':_parked', 0, -1)) end
      end
      queues[#queues + 1] = queue
    end
  end
end
return answer('done', {queues = queues})
