-- verb: measure queues
-- what: how many jobs stand where in some queues, and since when the first one waits
-- request
--   queue_model, pks
--   classes   JSON: the name of the model by the path of a job class
-- reply
--   done   {queues: [pk, name, priority, is_paused, jobs that wait, are delayed, run, succeeded, failed, entries in
--          quarantine, when the next delayed job is due or false, [dates of the job that waits first] or false, the
--          paths of classes that are not among the given ones, of the entries at the ends of its lists, jobs that run but
--          whose lease ended, jobs that are deferred, and parked]…, moment}

--@include idents
--@include bounded
--@include clock
--@include shared_key

local queue_model, classes = cjson.decode(request.queue_model), cjson.decode(request.classes)

-- A key of a wrong type counts as empty.
local function count(command, key, ...)
  local number = redis.pcall(command, key, ...)
  return type(number) == 'number' and number or 0
end

-- The fields that tell since when a job waits: when it was added, when its delay was over, when it ended or was put back.
local function dates_of(ident)
  local path, pk = parse_ident(type(ident) == 'string' and ident or '')
  local name = path and classes[path]
  local dates = name and redis.pcall('HMGET', name .. ':' .. pk .. ':hash', 'added', 'delayed_until', 'end', '_requeued_at')
  if not dates or dates.err then return false end
  for i, date in ipairs(dates) do dates[i] = bounded(date, 100) end
  return dates
end

-- The classes of the entries at the ends of the lists and sets of a queue that are not among the given ones: of those
-- that are not empty, by the names of their keys.
local function unknown_classes(base, numbers, waits_first)
  local found, seen = {}, {}
  local function note_class(entry)
    if type(entry) ~= 'string' or classes[string.match(entry, '^([^:]+):') or ''] then return end
    local path = parse_ident(entry)
    if path and #path <= LONGEST_NAME and not seen[path] then
      seen[path] = true
      found[#found + 1] = path
    end
  end
  note_class(waits_first)
  for _, list in ipairs({'waiting', 'success', 'errors'}) do
    local number, key = numbers[list], base .. ':' .. list
    if number > 0 and list ~= 'waiting' then note_class(redis.pcall('LINDEX', key, 0)) end
    if number > 1 then note_class(redis.pcall('LINDEX', key, -1)) end
  end
  for _, set in ipairs({'delayed', '_running'}) do
    if numbers[set] > 0 then note_class(redis.pcall('ZRANGE', base .. ':' .. set, 0, 0)[1]) end
  end
  return found
end

-- How many of the delayed jobs are there because no worker could import their class. Many are not looked at one by one.
local function deferred(base, delayed)
  local known, number = count('HLEN', base .. ':_deferrals'), 0
  if known > 5000 then return math.min(known, delayed) end
  for _, ident in ipairs(known > 0 and redis.pcall('HKEYS', base .. ':_deferrals') or {}) do
    if type(redis.pcall('ZSCORE', base .. ':delayed', ident)) == 'string' then number = number + 1 end
  end
  return number
end

local function measured(pk)
  local base = queue_model.name .. ':' .. pk
  local name, priority, lanes = unpack(redis.pcall('HMGET', base .. ':hash', 'name', 'priority', '_lanes'))
  if not name then return nil end
  local numbers = {}
  for _, list in ipairs({'waiting', 'success', 'errors', '_quarantine'}) do
    numbers[list] = count('LLEN', base .. ':' .. list)
  end
  for _, set in ipairs({'delayed', '_running'}) do numbers[set] = count('ZCARD', base .. ':' .. set) end
  local parked = lanes and count('ZCARD', base .. ':_parked') or 0
  local due = numbers.delayed > 0 and redis.pcall('ZRANGE', base .. ':delayed', 0, 0, 'WITHSCORES')[2]
  local waits_first = parked > 0 and redis.pcall('ZRANGE', base .. ':_parked', 0, 0)[1]
    or numbers.waiting > 0 and redis.pcall('LINDEX', base .. ':waiting', 0)
  local lapsed = numbers._running > 0 and count('ZCOUNT', base .. ':_running', '-inf', score(now())) or 0
  return {
    pk, bounded(name, LONGEST_NAME), bounded(priority or '0', LONGEST_NAME),
    redis.pcall('SISMEMBER', shared_key(base, 'paused'), name) == 1,
    numbers.waiting + parked, numbers.delayed, numbers._running, numbers.success, numbers.errors, numbers._quarantine,
    due or false, dates_of(waits_first), unknown_classes(base, numbers, waits_first),
    lapsed, numbers.delayed > 0 and deferred(base, numbers.delayed) or 0, parked,
  }
end

local queues = {}
for _, pk in ipairs(cjson.decode(request.pks)) do queues[#queues + 1] = measured(pk) end
return answer('done', {queues = queues, moment = now_text()})
