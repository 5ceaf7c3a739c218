-- verb: note levels
-- what: notes how many jobs wait and run in some queues, by their names, unless that was noted in this minute
-- KEYS[1]  the beginning of the keys of metrics
-- request
--   queues   JSON: [the beginning of the keys of a queue…]: 300 take some 2 milliseconds
-- reply
--   done

--@include envelope
--@include clock
--@include bounded

-- For how many seconds the levels of a minute are kept, and of how many names, at most.
local KEPT, MOST = 2 * 86400, 100

-- The field that says that there was no room for more names.
local IS_CUT = '\n'

-- A key of a wrong type counts as empty.
local function count(command, key)
  local number = redis.pcall(command, key)
  return type(number) == 'number' and number or 0
end

-- The sums by the names that were not noted before: a name has a queue for each priority.
local function levels_of(queues, key)
  local levels, is_noted = {}, {}
  for _, base in ipairs(queues) do
    local name, lanes = unpack(redis.pcall('HMGET', base .. ':hash', 'name', '_lanes'))
    if type(name) == 'string' and name ~= '' and #name <= LONGEST_NAME then
      if is_noted[name] == nil then is_noted[name] = redis.call('HEXISTS', key, name) == 1 end
      if not is_noted[name] then
        local level = levels[name] or {waiting = 0, running = 0}
        level.waiting = level.waiting + count('LLEN', base .. ':waiting') + (lanes and count('ZCARD', base .. ':_parked') or 0)
        level.running = level.running + count('ZCARD', base .. ':_running')
        levels[name] = level
      end
    end
  end
  return levels
end

local key = KEYS[1] .. 'levels:' .. string.format('%.0f', math.floor(now() / 60000000) * 60)
local noted = redis.pcall('HLEN', key)
if type(noted) ~= 'number' then return answer('done') end  -- another program wrote there
for name, level in pairs(levels_of(cjson.decode(request.queues), key)) do
  if noted >= MOST then
    redis.call('HSET', key, IS_CUT, 1)
    break
  end
  redis.call('HSET', key, name, string.format('%.0f %.0f', level.waiting, level.running))
  noted = noted + 1
end
if noted > 0 and redis.call('TTL', key) == -1 then redis.call('EXPIRE', key, KEPT) end
return answer('done')
