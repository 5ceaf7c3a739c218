-- verb: write metrics
-- what: adds to the metrics of this minute, of this day, and of all time, what became of some jobs
-- KEYS[1]  the beginning of the keys of metrics
-- request
--   rows      JSON: [name of a queue, path of a class, [numbers…]]…: 30 take some 3 milliseconds
--   classes   JSON: the name of the model by the path of a class: of these, the last pk is noted
-- reply
--   done

--@include envelope
--@include clock

-- The seconds of a period, for how many its metrics are kept, and how many rows it has at most. The sums of all time
-- are kept until no worker has written for a year.
local PERIODS = {
  minute = {size = 60, kept = 2 * 86400, most = 500},
  day = {size = 86400, kept = 366 * 86400, most = 5000},
  total = {kept = 366 * 86400, most = 500},
}

-- The row for all others, once there are too many rows.
local OTHERS = '\n'

local function sum(text, numbers)
  local i, total = 0, {}
  for number in string.gmatch(text or '', '%S+') do
    i = i + 1
    total[i] = tonumber(number) or 0
  end
  for at, number in ipairs(numbers) do
    total[at] = string.format('%.0f', (total[at] or 0) + number)
  end
  return table.concat(total, ' ')
end

-- The last pk of each class, as a field: its difference to the period before is how many jobs were added.
local function last_pks(classes)
  local found = {}
  for path, name in pairs(classes) do
    local pk = redis.pcall('GET', name .. ':max_pk')
    if type(pk) == 'string' and tonumber(pk) then found['\n' .. path] = pk end
  end
  return found
end

-- The fields of a period once the rows are added; rows for which there is no room are added as one.
local function summed(key, rows, most)
  local names, found = {OTHERS}, {}
  for i, row in ipairs(rows) do names[i + 1] = table.concat(row, '\n', 1, 2) end
  for i, text in ipairs(redis.call('HMGET', key, unpack(names))) do found[names[i]] = text or nil end
  local room, changed = most - redis.call('HLEN', key), {}
  for i, row in ipairs(rows) do
    local name, _, _, numbers = names[i + 1], unpack(row)
    if not found[name] then
      room = room - 1
      name = room >= 0 and name or OTHERS
    end
    changed[name] = sum(changed[name] or found[name], numbers)
  end
  return changed
end

local function write_all(key, fields)
  local words = {}
  for name, value in pairs(fields) do
    words[#words + 1], words[#words + 2] = name, value
  end
  if #words > 0 then redis.call('HSET', key, unpack(words)) end
end

local function key_of(name, size)
  local start = size and ':' .. string.format('%.0f', math.floor(now() / 1000000 / size) * size) or ''
  return KEYS[1] .. name .. start
end

local rows, pks = cjson.decode(request.rows), last_pks(cjson.decode(request.classes))
for name, period in pairs(PERIODS) do
  local key = key_of(name, period.size)
  if type(redis.pcall('HLEN', key)) == 'number' then  -- else something foreign is there: the others have its metrics
    write_all(key, summed(key, rows, period.most))
    if period.size then write_all(key, pks) end
    if not period.size or redis.call('TTL', key) == -1 then redis.call('EXPIRE', key, period.kept) end
  end
end
return answer('done')
