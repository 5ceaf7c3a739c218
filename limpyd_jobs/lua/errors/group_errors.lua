-- verb: group errors
-- what: looks at some errors, and counts those that meet some conditions by their cause
-- request
--   model, pks, first, last, within, conditions, standing
-- reply
--   done   {groups: {fingerprint: {type, raised_in, count, first_seen, last_seen, last: its pk, job_class, queue,
--          app_version, hour: {value: number}, the hour as 2026-11-25 10; patterns: {pattern of the message: {count, pks: of some of them}}, texts: the
--          same of messages whose pattern is not stored: their beginning}}, looked: at how many, seen: the last pk}

--@include finding

local FIELDS = {
  '_fingerprint', 'type', 'date_time', 'job_model_repr', 'queue_name', '_app_version', '_raised_in', '_message_pattern'
}
local position = {}
for _, name in ipairs(FIELDS) do position[name] = position_of(name) end

local EXAMPLES = 3
local BEGINNING = 300  -- bytes of a message

local groups = {}

local function group_of(type, fingerprint)
  local key = fingerprint or type  -- version 2 writes none
  if not groups[key] then
    groups[key] = {type = type, count = 0, job_class = {}, queue = {}, app_version = {}, hour = {}, patterns = {}, texts = {}}
  end
  return groups[key]
end

local function count(numbers, value)
  if value then numbers[value] = (numbers[value] or 0) + 1 end
end

-- The beginning of a message: whole characters, of which a byte from 0x80 to 0xBF begins none.
local function beginning_of_message(pk)
  local text = redis.pcall('HGET', key_of(pk), 'message')
  if type(text) ~= 'string' then return '' end
  local last = math.min(#text, BEGINNING)
  while last > 0 and string.find(string.sub(text, last + 1, last + 1), '[\128-\191]') do last = last - 1 end
  return string.sub(text, 1, last)
end

local function count_message(messages, text, pk)
  local message = messages[text] or {count = 0, pks = {}}
  messages[text] = message
  message.count = message.count + 1
  if #message.pks < EXAMPLES then message.pks[#message.pks + 1] = pk end
end

local looked, seen = for_each_found(function(pk, values)
  local group = group_of(values[position.type] or '', values[position._fingerprint] or nil)
  local moment = values[position.date_time] or ''
  group.count = group.count + 1
  if not group.first_seen or moment < group.first_seen then group.first_seen = moment end
  if not group.last_seen or moment > group.last_seen then
    group.last_seen, group.last, group.raised_in = moment, pk, values[position._raised_in] or nil
  end
  count(group.job_class, values[position.job_model_repr])
  count(group.queue, values[position.queue_name])
  count(group.app_version, values[position._app_version])
  count(group.hour, string.match(moment, '^%d%d%d%d%-%d%d%-%d%d %d%d'))
  local pattern = values[position._message_pattern]
  if pattern then
    count_message(group.patterns, pattern, pk)
  else
    count_message(group.texts, beginning_of_message(pk), pk)
  end
end)
return answer('done', {groups = groups, looked = looked, seen = seen})
