-- Finding: which jobs of a class meet some conditions. These names mean the same everywhere:
--   pks            the jobs to look at; or
--   first, last    all from one pk to another, which are numbers, in that order
--   within         the key of a set: only its members
--   conditions     JSON: [{test, field, value…, is_negated}…], see TESTS
--   standing       none, or JSON, to find jobs that do not say in which queue they are: {paths: of their class, queues:
--                  [what the keys of a model of queues begin with, and those of its index of priorities]…}

--@include envelope
--@include clock

local key_prefix, conditions = cjson.decode(request.model).name .. ':', cjson.decode(request.conditions)

local function key_of(pk)
  return key_prefix .. pk .. ':hash'
end

-- The fields that are read of each job, and their positions.
local fields, positions = {'status'}, {status = 1}

local function position_of(field)
  field = field == 'queue' and '_queue_key' or field
  if not positions[field] then
    fields[#fields + 1] = field
    positions[field] = #fields
  end
  return positions[field]
end

-- Where jobs of version 2 stand, which do not say so: the queue, by ident. Jobs that were added one after the other
-- stand side by side: if one is found, its neighbours are noted as well.
local standing, found_in, filled_queues = request.standing and cjson.decode(request.standing), {}, {}
local NEIGHBOURS, MOST_QUEUES = 500, 5000

-- The queues of a priority that are not empty.
local function filled_queues_of(priority)
  if not filled_queues[priority] then
    local filled = {}
    for _, model in ipairs(standing.queues) do
      local name, priorities = unpack(model)
      for _, pk in ipairs(redis.pcall('SRANDMEMBER', priorities .. priority, MOST_QUEUES)) do
        local base = name .. ':' .. pk
        if redis.pcall('EXISTS', base .. ':waiting', base .. ':delayed', base .. ':_parked') ~= 0 then filled[#filled + 1] = base end
      end
    end
    filled_queues[priority] = filled
  end
  return filled_queues[priority]
end

local function find_place(ident, priority)
  for _, base in ipairs(filled_queues_of(priority)) do
    local at = redis.pcall('LPOS', base .. ':waiting', ident)
    if type(at) == 'number' then
      local first = math.max(0, at - NEIGHBOURS)
      for _, each in ipairs(redis.pcall('LRANGE', base .. ':waiting', first, at + NEIGHBOURS)) do found_in[each] = base end
    elseif type(redis.pcall('ZSCORE', base .. ':delayed', ident)) == 'string'
        or type(redis.pcall('ZSCORE', base .. ':_parked', ident)) == 'string' then
      found_in[ident] = base
    end
    if found_in[ident] then return end
  end
end

-- The queue of a job: by what the job says, or else by where it stands, as itself or by a former path of its class.
local function queue_of(pk, values)
  local key = values[position_of('_queue_key')]
  local status = values[positions.status]
  if key or not standing or status ~= STATUSES.WAITING and status ~= STATUSES.DELAYED then return key end
  local priority = redis.pcall('HGET', key_of(pk), 'priority')
  for _, path in ipairs(standing.paths) do
    local ident = path .. ':' .. pk
    if not found_in[ident] then find_place(ident, type(priority) == 'string' and priority or '0') end
    if found_in[ident] then return found_in[ident] end
  end
end

local queue_names = {}

local function name_of_queue(key)
  if key and queue_names[key] == nil then
    local name = redis.pcall('HGET', key .. ':hash', 'name')
    queue_names[key] = type(name) == 'string' and name
  end
  return key and queue_names[key]
end

-- The number of a text, as in indexes of numbers: Python reads 1_000, but no hexadecimal number.
local function number_of(text)
  return not string.find(text, '[xX]') and tonumber((string.gsub(text, '(%d)_%f[%d]', '%1'))) or nil
end

-- Texts are compared as texts; with a number, only numbers; with a moment, which is a number, only dates.
local function comparable(condition, value)
  if not value then return nil end
  if condition.is_date then return tonumber(score_of_date(value) or '') end
  if condition.is_number then return number_of(value) end
  return value
end

local STAR, QUESTION_MARK = string.byte('*'), string.byte('?')
local LONGEST_QUEUE_NAME = 1000

-- Whether a text fits a pattern with * and ?. Patterns of Lua would try all ways to divide the text among the stars: here
-- the last star alone takes more, and each star before it as little as it can.
local function matches_pattern(text, pattern)
  local at, star_at, in_text, in_pattern = 1, nil, nil, 1
  while at <= #text do
    local wanted = string.byte(pattern, in_pattern)
    if wanted == STAR then
      star_at, in_text, in_pattern = in_pattern, at, in_pattern + 1
    elseif wanted == QUESTION_MARK or wanted == string.byte(text, at) then
      at, in_pattern = at + 1, in_pattern + 1
    elseif star_at then
      in_text, in_pattern = in_text + 1, star_at + 1
      at = in_text
    else
      return false
    end
  end
  return string.find(string.sub(pattern, in_pattern), '^%**$') ~= nil
end

-- The type, the fingerprint and the version of the application of the last error that is recorded of a job, of some
-- models: [{of_job, of_class, errors}…].
local function last_error_of(pk, models)
  local type, fingerprint, version, moment
  for _, model in ipairs(models) do
    local last = nil
    for _, error_pk in ipairs(redis.pcall('SINTER', model.of_job .. pk, model.of_class)) do
      if not last or (tonumber(error_pk) or 0) > (tonumber(last) or 0) then last = error_pk end
    end
    local key = last and model.errors .. ':' .. last .. ':hash'
    local values = key and redis.pcall('HMGET', key, 'type', '_fingerprint', '_app_version', 'date_time') or {}
    local its_type, its_fingerprint, its_version, its_moment = unpack(values)
    if #values > 0 and (not moment or (its_moment or '') > moment) then
      type, fingerprint, version, moment = its_type, its_fingerprint, its_version, its_moment or ''
    end
  end
  return type, fingerprint, version
end

-- Whether a value is the one that is asked for, or one of several.
local function is_asked_for(value, condition)
  if not condition.values then return value == condition.value end
  for _, each in ipairs(condition.values) do
    if value == each then return true end
  end
end

local TESTS = {
  is = function(condition, value) return is_asked_for(value or '', condition) end,
  less = function(condition, value)
    local found = comparable(condition, value)
    return found ~= nil and (found < condition.value or condition.or_equal and found == condition.value)
  end,
  more = function(condition, value)
    local found = comparable(condition, value)
    return found ~= nil and (found > condition.value or condition.or_equal and found == condition.value)
  end,
  equal = function(condition, value) return comparable(condition, value) == condition.value end,
  queue = function(condition, _, pk, values) return is_asked_for(name_of_queue(queue_of(pk, values)), condition) end,
  class = function(condition, value)
    local name = condition.is_path and value or string.match(value or '', '[^.]*$')
    return name and #name <= LONGEST_QUEUE_NAME and matches_pattern(name, condition.pattern)
  end,
  pk = function(condition, _, pk) return pk == condition.value end,
  -- the name of a claim is a random text, '@', and its owner
  owner = function(condition, value)
    local owner = value and string.match(value, '^[^@]*@([^/]*)')
    return owner == condition.value or owner and string.sub(owner, 1, #condition.value + 1) == condition.value .. ':'
  end,
  -- the job has an error of that type, or fingerprint, of one of the models; for some types, only errors without a
  -- fingerprint count
  error = function(condition, _, pk)
    for _, model in ipairs(condition.models) do
      local found = redis.pcall('SINTER', model.of_job .. pk, model.of_class, model.of_kind)
      for _, error_pk in ipairs(found) do
        if not condition.without then return true end
        local reply = redis.pcall('HEXISTS', model.errors .. ':' .. error_pk .. ':hash', condition.without)
        if reply == 0 then return true end
      end
    end
  end,
  -- the same of its last error alone
  ['last error'] = function(condition, _, pk)
    local type, fingerprint = last_error_of(pk, condition.models)
    if condition.without then return not fingerprint and type == condition.value end
    return fingerprint == condition.value
  end,
  ['last version'] = function(condition, _, pk)
    local _, _, version = last_error_of(pk, condition.models)
    return (version or '') == condition.value
  end,
}

for _, condition in ipairs(conditions) do condition.position = condition.field and position_of(condition.field) or 0 end

local function meets(values, pk)
  for _, condition in ipairs(conditions) do
    local is_met = TESTS[condition.test](condition, values[condition.position] or nil, pk, values) and true or false
    if is_met == (condition.is_negated or false) then return false end
  end
  return true
end

local function has_something(values, pk)
  for _, value in ipairs(values) do
    if value then return true end
  end
  return redis.call('EXISTS', key_of(pk)) == 1
end

-- How many bytes of long values are read before the time is looked at: copying them takes long.
local LONG_VALUE, MANY_BYTES = 10000, 1000000
local bytes_read = 0

local function look_at(pk)
  local values = redis.pcall('HMGET', key_of(pk), unpack(fields))
  for i = 1, #fields do
    local value = values[i]
    if value and #value > LONG_VALUE then bytes_read = bytes_read + #value end
  end
  return not values.err and meets(values, pk) and has_something(values, pk) and values
end

-- The pks to look at: the given ones, or the members of a set that are in a range.
local function pks_of_range()
  local first, last, pks = tonumber(request.first), tonumber(request.last), {}
  for pk = first, last, first <= last and 1 or -1 do pks[#pks + 1] = string.format('%.0f', pk) end
  local is_member = redis.pcall('SMISMEMBER', request.within, unpack(pks))
  local those = {}
  for i, pk in ipairs(pks) do
    if is_member[i] == 1 then those[#those + 1] = pk end
  end
  return those, pks[#pks]
end

-- For about how many microseconds all other clients may wait. The caller goes on after the last pk.
local LONGEST = 20000

local has_os, processor_clock = pcall(function() return os.clock end)
local is_frozen = (redis.REDIS_VERSION_NUM or 0) >= 0x070200
local times_read = 0

-- Microseconds, by a clock that goes on during a script. Since Redis 7.2, TIME stands still meanwhile. Since 7.4, and
-- in Valkey 8, there is os.clock(). Versions between have no such clock: each reading counts as a millisecond.
local function running_clock()
  times_read = times_read + 1
  if has_os then return processor_clock() * 1000000 end
  if is_frozen then return times_read * 1000 end
  local seconds, microseconds = unpack(redis.pcall('TIME'))
  return seconds * 1000000 + microseconds
end

-- Calls a function with the pk of each job that is found, and the values of its fields, until it returns true, or the
-- time is over, as there may be any number of conditions. Returns at how many jobs it looked, and the last pk.
local function for_each_found(act)
  local pks, last
  local started, each = running_clock(), math.max(1, math.min(20, math.floor(200 / (#conditions + 1))))
  if request.pks then pks = cjson.decode(request.pks) else pks, last = pks_of_range() end
  for i, pk in ipairs(pks) do
    local values = look_at(pk)
    if values and act(pk, values) then return i, pk end
    if i % each == 0 or bytes_read > MANY_BYTES then
      bytes_read = 0
      if running_clock() > started + LONGEST then return i, pk end
    end
  end
  return #pks, last or pks[#pks]
end
