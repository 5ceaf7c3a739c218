-- Records: the hash of a limpyd model, its index sets and its collection, always changed together.
-- A model is given as JSON: {name, path: of the class of a job, indexes: {field: [key prefix]}, ranges: {field:
-- [key]}, dates: {key: true}, special: {field: true}, unique: {field: key prefix}, defaults: {field: value}, keys:
-- [field], arguments: [field], leases: key}. `indexes` keep a set for each value, `ranges` one sorted set for all, by
-- the value as a number, or as a date if the key is among the `dates`. `special` are the fields that have an index
-- which only limpyd can maintain; `keys` the fields that are stored outside of the hash; `leases` is the key of the
-- leases of timed records, `limits` those of a job (see limits.lua), `tells` whether changes are told, `history` how many changes of status are kept of a job.

--@include envelope
--@include batches
--@include clock
--@include output
--@include slots

local function hash_key(model, pk)
  return model.name .. ':' .. pk .. ':hash'
end

local probed = {}

-- Fails before anything is written if one of these keys has a wrong type: Redis does not undo half a script. Each key
-- is probed once, as this script then writes only that type.
local function probe(command, key, ...)
  if not probed[key] then
    redis.call(command, key)
    probed[key] = true
  end
  if ... then probe(command, ...) end
end

local NOTHING, known_models = {}, {}

-- What is read of each job that is claimed: its arguments, the fields of its limits, and what it holds of these.
--@rarely
local function read_for_limits(model)
  model.read = {unpack(model.read)}
  for _, field in ipairs(model.limits.fields) do model.read[#model.read + 1] = field end
  model.read[#model.read + 1] = '_slots'
end

-- The model of a JSON text, which a caller may give more than once. Its empty parts are left out.
local function model_of(json)
  local model = known_models[json]
  if not model then
    model = cjson.decode(json)
    model.indexes, model.ranges = model.indexes or NOTHING, model.ranges or NOTHING
    model.special, model.unique = model.special or NOTHING, model.unique or NOTHING
    model.defaults, model.read = model.defaults or NOTHING, model.arguments or NOTHING
    if model.limits then read_for_limits(model) end
    known_models[json] = model
  end
  return model
end

-- Notes a command that undoes a change of a set: four words, of which the last one may be false.
local function note_undo(undo, command, key, pk, other)
  local size = #undo
  undo[size + 1], undo[size + 2], undo[size + 3], undo[size + 4] = command, key, pk, other or false
end

--@rarely
local function undo_all(undo)
  for i = #undo - 3, 1, -4 do
    local command, key, pk, other = unpack(undo, i, i + 3)
    if other then redis.call(command, key, other, pk) else redis.call(command, key, pk) end
  end
end

-- Changes a set, and notes how to undo that. If it fails, all noted changes are undone, and the script fails.
local function write(undo, command, opposite, key, pk)
  if batch then
    probe('SCARD', key)
    send(command, key, pk)
    return
  end
  local reply = redis.pcall(command, key, pk)
  if reply == 1 then
    note_undo(undo, opposite, key, pk)
  elseif reply ~= 0 then
    undo_all(undo)
    redis.call(command, key, pk)
  end
end

-- Changes the sets of an index; a value may be false. It is one command if the pk stands where it should.
local function write_index(undo, prefix, old, value, pk)
  if old and value and not batch and redis.pcall('SMOVE', prefix .. old, prefix .. value, pk) == 1 then
    note_undo(undo, 'SMOVE', prefix .. value, pk, prefix .. old)
    return
  end
  if old then write(undo, 'SREM', 'SADD', prefix .. old, pk) end
  if value then write(undo, 'SADD', 'SREM', prefix .. value, pk) end
end

-- The score of a value, as in limpyd: 0 if it is not a number. Redis refuses numbers that are too large, or too small.
--@rarely
local function score_of(value)
  local text = string.lower(string.gsub(string.match(value, '^%s*(.-)%s*$'), '(%d)_%f[%d]', '%1'))
  local sign, word = string.match(text, '^([+-]?)(%a+)$')
  if word == 'inf' or word == 'infinity' then
    return sign .. 'inf'
  end
  local number = string.find(text, '^[+-]?[%d.]+e?[+-]?%d*$') and tonumber(text) or 0
  return math.abs(number) == math.huge and (number > 0 and 'inf' or '-inf') or number == 0 and '0' or text
end

-- The score of a value in a range index; nil if the index is of dates and the value is not a date.
--@rarely
local function score_in(model, key, value)
  if model.dates and model.dates[key] then return score_of_date(value) end
  return score_of(value)
end

-- Changes range indexes: it cannot fail, as their types were probed.
--@rarely
local function write_ranges(model, pk, changes, values)
  for field, keys in pairs(model.ranges) do
    local value = changes[field]
    for _, key in ipairs(value ~= nil and value ~= (values and values[field]) and keys or NOTHING) do
      local wanted = value and score_in(model, key, value)
      if wanted then send('ZADD', key, wanted, pk) else send('ZREM', key, pk) end
    end
  end
end

--@rarely
local function probe_ranges(model)
  for _, keys in pairs(model.ranges) do probe('ZCARD', unpack(keys)) end
end

-- The values of fields before some changes: to the values that the caller has read already, it adds the values of other
-- indexed fields. A field without a value has the value false.
local function values_before(model, pk, changes, values)
  local indexes, ranges, special, names = model.indexes, model.ranges, model.special, nil
  if changes.queued == false and values._unique_for == nil then
    names = {'_unique_for', '_flow', '_emitted'}
  end
  if model.limits and changes._claim_token == false and values._slots == nil then
    names = names or {}
    names[#names + 1] = '_slots'
  end
  for field in pairs(changes) do
    if values[field] == nil and (indexes[field] or ranges[field] or special[field]) then
      names = names or {}
      names[#names + 1] = field
    end
  end
  if changes.queued == '1' and values.queued ~= '1' and model.path then
    names = names or {}
    if values._flow == nil then names[#names + 1] = '_flow' end
    if values._emitted == nil then names[#names + 1] = '_emitted' end
  end
  if names and names[1] then
    local found = redis.call('HMGET', hash_key(model, pk), unpack(names))
    for i = 1, #names do values[names[i]] = found[i] end
  end
  return values
end

-- Sets fields of a record, with their indexes; the value false unsets one. A field that is not among the values before
-- is in no index yet; a new record has false in place of all values.
local function write_fields(model, pk, changes, values)
  local indexes, special, reindexed, unset = model.indexes, model.special, nil, nil
  -- with room for eight fields, and for four entries of indexes: a table that grows costs time
  local set, size = {nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}, 0
  local undo = {nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
  if model.ranges ~= NOTHING then probe_ranges(model) end
  for field, value in pairs(changes) do
    local old = values and values[field]
    if old ~= value then
      local prefixes = indexes[field]
      if prefixes then
        for i = 1, #prefixes do write_index(undo, prefixes[i], old, value, pk) end
      end
      if special[field] then
        reindexed = reindexed or {}
        reindexed[#reindexed + 1] = {model.name, pk, field, old or false, value}
      end
      if value then
        set[size + 1], set[size + 2], size = field, value, size + 2
      else
        unset = unset or {}
        unset[#unset + 1] = field
      end
    end
  end
  if model.ranges ~= NOTHING then write_ranges(model, pk, changes, values) end
  local key = hash_key(model, pk)
  if size > 0 then redis.call('HSET', key, unpack(set, 1, size)) end
  if unset then redis.call('HDEL', key, unpack(unset)) end
  for _, change in ipairs(reindexed or NOTHING) do reindex[#reindex + 1] = change end
end

-- Tells listeners that a record was made, changed or deleted; for a job, with its status, the one before, and its
-- queue. Nothing depends on it: if it fails, the step goes on.
--@rarely
local function tell(model, pk, what, status, before, queue_key)
  local of_job = model.path and {'status', status or '', 'before', before or '', 'queue', queue_key or ''} or NOTHING
  redis.pcall('XADD', model.name .. ':changes', 'MAXLEN', '~', 10000, '*', 'pk', pk, 'what', what, unpack(of_job))
end

-- Tells what was written to a record: for a job, another status; for other records, all except a lease.
--@rarely
local function tell_written(model, pk, what, changes, values)
  if model.path then
    local status, before = changes.status, values.status or false
    if status ~= nil and status ~= before then
      local queue_key = changes._queue_key
      if queue_key == nil then queue_key = redis.call('HGET', hash_key(model, pk), '_queue_key') end
      tell(model, pk, what, status, before, queue_key)
    end
    return
  end
  for field, value in pairs(changes) do
    local is_lease = model.leases and field == 'leased_by'
    if not is_lease and value ~= values[field] then return tell(model, pk, what) end
  end
end

-- Notes another status in the history of a job, with the claim that began or ended with it. Nothing depends on it.
--@rarely
local function note_history(model, pk, changes, before)
  local status = changes.status
  if not status or status == before then return end
  local key = model.name .. ':' .. pk .. ':_history'
  local reason = changes._cancel_reason and '\t' .. changes._cancel_reason or ''
  local token = changes._claim_token or changes._last_claim or ''
  redis.pcall('RPUSH', key, now_text() .. ' ' .. status .. ' ' .. token .. reason)
  redis.pcall('LTRIM', key, -model.history, -1)
end

-- The key that keeps an identifier from being added again for a while: the pk of the job that ended, and until when, in
-- microseconds. The tests of an application may move the time, so the key may live longer.
--@rarely
local function throttle_key(model, identifier)
  return model.name .. ':_throttle:' .. identifier
end

-- The pk of the job that ended a while ago, so that its identifier is not to be added again yet; nil if it may be.
--@rarely
local function throttled_by(model, identifier, seconds)
  local found = (tonumber(seconds) or 0) > 0 and redis.pcall('GET', throttle_key(model, identifier))
  local pk, til = string.match(type(found) == 'string' and found or '', '^(%S+) (%d+)$')
  return til and tonumber(til) > now() and pk or nil
end

-- Keeps the identifier of a job that ended as a success or an error from being added again for some seconds. After the
-- other ends, it may be.
--@rarely
local function throttle(model, pk, seconds, identifier, status)
  local milliseconds = math.ceil((tonumber(seconds) or 0) * 1000)
  local has_run = status == STATUSES.SUCCESS or status == STATUSES.ERROR
  if not identifier or not has_run or milliseconds <= 0 then return end
  local value = string.format('%s %.0f', pk, now() + milliseconds * 1000)
  redis.call('SET', throttle_key(model, identifier), value, 'PX', string.format('%.0f', milliseconds))
end

-- The same for a job that has just left its queue.
--@rarely
local function throttle_ended(model, pk, changes, values)
  if values.queued ~= '1' then return end
  local identifier, status = unpack(redis.call('HMGET', hash_key(model, pk), 'identifier', 'status'))
  throttle(model, pk, values._unique_for, identifier, changes.status or status)
end

-- Adds the end of a job to its output, so that those who follow it look at the job; from now on it expires. Nothing
-- depends on it.
--@rarely
local function end_output(model, pk, text, status)
  local output = output_from(text)
  if not output then return end
  local key = output_key(model.name, pk)
  output.number, output.size = output.number + 1, output.size + 1
  redis.pcall('XADD', key, chunk_id(output.run, output.number), 'end', status or '')
  redis.pcall('PEXPIRE', key, output.kept_for)
  redis.call('HSET', hash_key(model, pk), '_emitted', stored_output(output))
end

-- What follows for its output if a job is queued again, or no longer: it expires only once the job has ended.
--@rarely
local function follow_output(model, pk, changes, values)
  if not changes.queued then
    end_output(model, pk, values._emitted, changes.status)
  elseif values.queued ~= '1' then
    redis.pcall('PERSIST', output_key(model.name, pk))
  end
end

-- Changes fields of a record; the value false unsets one. `known` are values that the caller has read already, if any:
-- with `queued`, also `_unique_for`, `_flow` and `_emitted`. Whatever lets a node of a flow be queued, or no longer, comes
-- through here. What a job held of its limits is free with the end of its claim.
local function update(model, pk, changes, known)
  local values = values_before(model, pk, changes, known or {})
  local ends_claim = model.limits and changes._claim_token == false
  if ends_claim then changes._slots = false end
  local is_new = model.tells and not values.status and redis.call('EXISTS', hash_key(model, pk)) == 0
  write_fields(model, pk, changes, values)
  if ends_claim and values._slots then free_slots(model.path .. ':' .. pk, values._slots) end
  if values._unique_for and changes.queued == false then throttle_ended(model, pk, changes, values) end
  if values._flow and changes.queued ~= nil then follow_change(model, pk, changes, values) end
  if values._emitted and changes.queued ~= nil then follow_output(model, pk, changes, values) end
  if model.tells then tell_written(model, pk, is_new and 'made' or 'changed', changes, values) end
  if model.history then note_history(model, pk, changes, values.status) end
end

-- Fails before anything is written if a record cannot be changed, as an index is of a wrong type. It is for callers
-- that write something else before.
local function probe_indexes(model, pk, changes)
  local values = values_before(model, pk, changes, {})
  for field, value in pairs(changes) do
    for _, prefix in ipairs(model.indexes[field] or NOTHING) do
      if values[field] then probe('SCARD', prefix .. values[field]) end
      if value then probe('SCARD', prefix .. value) end
    end
  end
  probe_ranges(model)
end

-- The changes that take a record out of all its indexes.
--@rarely
local function all_indexed_unset(model)
  local changes = {}
  for _, indexes in ipairs({model.indexes, model.ranges}) do
    for field in pairs(indexes) do changes[field] = false end
  end
  return changes
end

-- Takes a record out of all its indexes; returns the values that it had.
--@rarely
local function remove_from_indexes(model, pk)
  local changes = all_indexed_unset(model)
  local values = values_before(model, pk, changes, {})
  write_fields(model, pk, changes, values)
  return values
end

-- A job that is deleted is parked no more; if its claim ends with that, it holds nothing of its limits.
--@rarely
local function leave_limits(model, pk, status)
  local ident, slots, base = model.path .. ':' .. pk, unpack(redis.call('HMGET', hash_key(model, pk), '_slots', '_queue_key'))
  if base then unpark(base, ident) end
  if status and slots then free_slots(ident, slots) end
end

-- Deletes the hash of a record, its other fields, and its entries in indexes and its collection; 1, or 0 if it was not
-- there. For a job, a status may be given: it is told as if the job had it, and its claim ends. Without one, what a job
-- that runs holds of its limits lapses with its lease, as its code goes on.
--@rarely
local function delete_record(model, pk, status)
  local key, collection = hash_key(model, pk), model.name .. ':collection'
  probe('SCARD', collection)
  local is_to_tell = model.tells and redis.call('EXISTS', key) == 1
  local status_before, queue_key = unpack(is_to_tell and redis.call('HMGET', key, 'status', '_queue_key') or NOTHING)
  if model.limits then leave_limits(model, pk, status) end
  local values = remove_from_indexes(model, pk)
  if status and values._unique_for and values.queued == '1' then
    throttle(model, pk, values._unique_for, values.identifier, status)
  end
  if model.leases then redis.call('ZREM', model.leases, pk) end
  if model.path then  -- so it is a job, which may have any of these
    local base = model.name .. ':' .. pk
    redis.call('UNLINK', key, base .. ':_result', base .. ':_log', base .. ':_history', base .. ':_output')
  else
    redis.call('UNLINK', key)
  end
  for _, field in ipairs(model.keys or NOTHING) do redis.call('UNLINK', model.name .. ':' .. pk .. ':' .. field) end
  if is_to_tell and status then tell(model, pk, 'changed', status, status_before, queue_key) end
  if is_to_tell then tell(model, pk, 'deleted', '', status or status_before, queue_key) end
  local number = redis.call('SREM', collection, pk)
  if values._flow then follow_change(model, pk, {queued = false, status = status or 'gone'}, values) end
  return number
end

-- Whether a canceled job is over, as the lease of its worker, which would have ended it, has lapsed.
--@rarely
local function has_lapsed(model, pk, queue_key)
  local lease = queue_key and redis.pcall('ZSCORE', queue_key .. ':_running', model.path .. ':' .. pk)
  return type(lease) == 'string' and tonumber(lease) <= now() / 1000000
end

-- Ends a canceled job that is over, in place of its worker, so that its identifier is free.
--@rarely
local function end_canceled(model, pk, queue_key)
  update(model, pk, {queued = false, _claim_token = false, _rescues = false, _last_claim = false})
  redis.call('ZREM', queue_key .. ':_running', model.path .. ':' .. pk)
end

-- The pk of another queued job with that identifier, or nil; and whether it only counts as queued because it is still
-- claimed, though it was canceled. Of one that runs and one that follows it, it is the latter. Unless it is dry, it ends a
-- canceled job that is over.
local function other_queued(job, identifier, is_dry)
  local indexes, live, ending = job.model.indexes, nil, nil
  for _, pk in ipairs(redis.call('SINTER', indexes.identifier[1] .. identifier, indexes.queued[1] .. '1')) do
    local queued, status, queue_key, token, followed_by = unpack(pk ~= job.pk and redis.call(
      'HMGET', hash_key(job.model, pk), 'queued', 'status', '_queue_key', '_claim_token', '_followed_by') or NOTHING)
    local is_canceled = status == STATUSES.CANCELED
    if queued == '1' then
      if is_canceled and has_lapsed(job.model, pk, queue_key) then
        if not is_dry then end_canceled(job.model, pk, queue_key) end
      elseif is_canceled and token then
        ending = pk
      else
        live = followed_by and live or pk
      end
    end
  end
  return live or ending, not live
end

-- Whether a record was made, and not deleted: else a write would make half a record.
local function is_in_collection(model, pk)
  local collection = model.name .. ':collection'
  local is_in = redis.call('SISMEMBER', collection, pk) == 1
  probed[collection] = true
  return is_in
end

-- Increases a counter by one. A value after which there is no pk of at most 18 digits is replaced; a key of another type
-- is left alone.
local function increased(counter)
  local number = redis.pcall('INCR', counter)
  if type(number) ~= 'number' or number < 1 or number >= 1e18 then
    redis.call('STRLEN', counter)
    redis.call('SET', counter, '0')
    number = redis.call('INCR', counter)
  end
  return string.format('%d', number)
end

-- The next primary key, above every existing one even if the counter was lost.
local function new_pk(model)
  local counter, collection = model.name .. ':max_pk', model.name .. ':collection'
  local pk = increased(counter)
  if is_in_collection(model, pk) then
    local highest = redis.call('SORT', collection, 'DESC', 'LIMIT', 0, 1)[1]
    redis.call('SET', counter, highest)
    pk = increased(counter)
  end
  while redis.call('EXISTS', hash_key(model, pk)) == 1 do
    pk = increased(counter)
  end
  return pk
end

-- The first field whose value another record has already: {field, value, pk of its owner}; nil if there is no such
-- field. `pk` is the record itself, if it exists.
local function not_unique(model, fields, pk)
  for field, prefix in pairs(model.unique) do
    for _, owner in ipairs(fields[field] and redis.call('SMEMBERS', prefix .. fields[field]) or {}) do
      if owner ~= pk then
        return {field = field, value = fields[field], pk = owner}
      end
    end
  end
end

-- Makes a new record, with the model's defaults. A record whose pk was reserved may have some fields already.
local function create(model, pk, fields, is_reserved)
  probe('SCARD', model.name .. ':collection')
  for field, value in pairs(model.defaults) do
    if fields[field] == nil then fields[field] = value end
  end
  write_fields(model, pk, fields, is_reserved and values_before(model, pk, fields, {}) or false)
  redis.call('SADD', model.name .. ':collection', pk)
  if model.tells then tell_written(model, pk, 'made', fields, NOTHING) end
  if model.history then note_history(model, pk, fields) end
end

-- Whether a record does not exist (any more), or is being deleted: then it has left its collection. `has_fields` is
-- true if the caller knows that it has fields.
local function is_gone(model, pk, has_fields)
  return not (has_fields or redis.call('EXISTS', hash_key(model, pk)) == 1) or not is_in_collection(model, pk)
end

--@include flows
