-- verb: group errors
-- what: looks at some errors, and counts those that meet some conditions by their cause
-- request
--   model, pks, first, last, within, conditions
-- reply
--   done   {groups: {fingerprint: {type, count, first_seen, last_seen, last: its pk, job_class, queue, app_version: {value:
--          number}}}, looked: at how many, seen: the last pk}

--@include finding

local FIELDS = {'_fingerprint', 'type', 'date_time', 'job_model_repr', 'queue_name', '_app_version'}
local position = {}
for _, name in ipairs(FIELDS) do position[name] = position_of(name) end

local groups = {}

local function group_of(type, fingerprint)
  local key = fingerprint or type  -- version 2 writes none
  if not groups[key] then
    groups[key] = {type = type, count = 0, job_class = {}, queue = {}, app_version = {}}
  end
  return groups[key]
end

local function count(numbers, value)
  if value then numbers[value] = (numbers[value] or 0) + 1 end
end

local looked, seen = for_each_found(function(pk, values)
  local group = group_of(values[position.type] or '', values[position._fingerprint] or nil)
  local moment = values[position.date_time] or ''
  group.count = group.count + 1
  if not group.first_seen or moment < group.first_seen then group.first_seen = moment end
  if not group.last_seen or moment > group.last_seen then group.last_seen, group.last = moment, pk end
  count(group.job_class, values[position.job_model_repr])
  count(group.queue, values[position.queue_name])
  count(group.app_version, values[position._app_version])
end)
return answer('done', {groups = groups, looked = looked, seen = seen})
