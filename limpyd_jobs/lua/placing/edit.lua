-- verb: edit
-- from: waiting or delayed
-- to: waiting or delayed
-- what: other values of its fields, another priority or delay, by hand; unless it is claimed, or not as the caller saw it
-- request
--   job_model, ident, queue_model, delay, audit, unaudited, registry, dry, fields
--   priority       none to keep it
--   promote        '1' to end its delay
--   default_name   the queue of a job that does not say in which it is
--   unset          JSON, names of fields that lose their value
--   seen           JSON, {field: the value that the caller saw, or ''}
-- reply
--   done          {changes: [field, old value or false, new value or false]…}: without any, it was so already, whatever
--                 the caller saw
--     in all other cases nothing is changed:
--   claimed       {token, if it has one}
--   not queued    {status}
--   changed       {field}: it has another value than the caller saw
--   not unique    {field, value, pk of its owner}
--   no queue
--   gone
--
-- It keeps its place in its list, unless its priority or its delay changes. Nothing else of it changes: who ended its last
-- claim gets the same reply again.

--@include audit
--@include idents
--@include limits
--@include places
--@include registry

refuse_if_moved(request.registry)
local job, queue_model = job_of(request.job_model, request.ident), model_of(request.queue_model)
local status, token, queued, own_priority, own_delay, known = unpack(redis.call(
  'HMGET', job.key, 'status', '_claim_token', 'queued', 'priority', 'delayed_until', '_queue_key'))
own_priority, own_delay = own_priority or '0', status == STATUSES.DELAYED and own_delay
local changes, priority = request.fields, request.priority or own_priority

local function name_of(base)
  local name = base and redis.pcall('HGET', base .. ':hash', 'name')
  return type(name) == 'string' and name or nil
end

local function due()
  if request.promote then return nil end
  local at = not request.delay and own_delay and parse_date(own_delay)
  return at and {at = at, text = own_delay} or due_at(request.delay)
end

local function changed_since()
  for field, value in pairs(cjson.decode(request.seen or '{}')) do
    if (redis.call('HGET', job.key, field) or '') ~= value then return field end
  end
end

local function reason_against()
  if status == STATUSES.RUNNING or token then return 'claimed', {token = token or nil} end
  if queued ~= '1' or status ~= STATUSES.WAITING and status ~= STATUSES.DELAYED then
    return 'not queued', {status = status or ''}
  end
end

-- What changes, sorted by the names of the fields.
local function differences()
  local names, found = {}, {}
  for field in pairs(changes) do names[#names + 1] = field end
  table.sort(names)
  local old = #names > 0 and redis.call('HMGET', job.key, unpack(names))
  for i, field in ipairs(names) do
    if field ~= '_queue_key' and old[i] ~= changes[field] then found[#found + 1] = {field, old[i], changes[field]} end
  end
  return found
end

if is_gone(job.model, job.pk, status) then return answer('gone') end
local why, details = reason_against()
if why then return answer(why, details) end
local conflict = not_unique(job.model, changes, job.pk)
if conflict then return answer('not unique', conflict) end

for _, field in ipairs(cjson.decode(request.unset or '[]')) do changes[field] = false end
local new_due, name = due(), name_of(known) or request.default_name
local moves = priority ~= own_priority or (request.promote or request.delay)
  and (is_delayed(new_due) and new_due.text or false) ~= own_delay
if moves then
  if not name then return answer('no queue') end
  placed(changes, priority, new_due)
end

local found = differences()
local changed = #found > 0 and changed_since()  -- a call that is sent once more finds nothing to change
if changed then return answer('changed', {field = changed}) end
if request.dry or #found == 0 then return answer('done', {changes = found}) end
if moves then
  prepare_place(queue_model, name, priority, new_due)
  if known then probe('LLEN', known .. ':waiting') end
  if known then probe('ZCARD', known .. ':delayed', known .. ':_running') end
end
probe_indexes(job.model, job.pk, changes)
write_entry(request.audit)
write_classes(request.registry)
if moves then
  place(job, queue_model, name_of(unplace(queue_model, name, job)) or name, priority, new_due, false, changes)
else
  if job.model.limits and known then sort_again(known, job, changes) end
  update(job.model, job.pk, changes)
end
return answer('done', {changes = found})
