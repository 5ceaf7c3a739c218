-- Adding: makes a new job, or finds the queued job with its identifier.

--@include following
--@include limits
--@include places

-- Whether a priority is above another one, as text. Numbers of Lua tell integers apart up to 2^53 only.
--@rarely
local function is_above(one, other)
  local difference = tonumber(one) - (tonumber(other) or -math.huge)
  if difference ~= 0 or #one ~= #other then
    return difference > 0
  end
  return one ~= other and (one > other) == (tonumber(one) > 0)
end

-- `where` is {model: of the queue, name, priority, due, prepend, custom}. The outcomes and their details are documented
-- in add.lua.
--@rarely
local function move_up(model, pk, where)
  local job = {model = model, pk = pk, ident = model.path .. ':' .. pk, key = hash_key(model, pk)}
  local status, priority, token, delayed_until, waits = unpack(redis.call(
    'HMGET', job.key, 'status', 'priority', '_claim_token', 'delayed_until', '_waits'))
  local is_running = status == STATUSES.RUNNING or token
  local outranked = where.prepend or is_above(where.priority, priority or '')
  if is_running or not outranked or is_parked(status, delayed_until, waits) then
    return 'existing', {pk = pk}
  elseif where.custom then
    return 'outranked', {pk = pk}
  end
  unplace(where.model, where.name, job)
  place(job, where.model, where.name, where.priority, where.due, where.prepend, {})
  return 'moved', {pk = pk}
end

-- What makes a queued job the one that would be made now: fields of the call, defaults, and no other ones. It was not
-- tried yet, with these arguments.
--@rarely
local function replacement(model, replaces, fields)
  local changes = {added = now_text()}
  for _, name in ipairs(cjson.decode((string.gsub(replaces, '^follow ', '')))) do changes[name] = false end
  for name, value in pairs(model.defaults) do changes[name] = value end
  for name, value in pairs(fields) do changes[name] = value end
  return changes
end

-- Lets a job that will be made follow one that still runs; returns until when it is delayed for now.
--@rarely
local function follow(model, ending, due, fields)
  fields._follows = ending .. (is_delayed(due) and ' ' .. due.text or '')
  return due_after(model, ending, due)
end

-- The same for a job that waits for others of its flow: it keeps its place there. One that waits for anything else has begun.
--@rarely
local function replace_parked(job, where, fields)
  if has_begun(job) then return 'running', {pk = job.pk} end
  local conflict = not_unique(job.model, fields, job.pk)
  if conflict then return 'not unique', conflict end
  local changes = replacement(job.model, where.replaces, fields)
  for _, name in ipairs({'_flow', '_after', '_waits'}) do changes[name] = nil end
  probe_indexes(job.model, job.pk, changes)
  update(job.model, job.pk, changes)
  return 'replaced', {pk = job.pk}
end

-- Lets the queued job of an identifier become the one that would be made, unless it is claimed, or its end is being
-- recorded: then also whether the new one is to follow it. It keeps its place in its waiting list, unless it comes into another
-- one.
--@rarely
local function replace_queued(model, pk, where, fields)
  local job = {model = model, pk = pk, ident = model.path .. ':' .. pk, key = hash_key(model, pk)}
  local status, token, known, follows, delayed_until, waits = unpack(redis.call(
    'HMGET', job.key, 'status', '_claim_token', '_queue_key', '_follows', 'delayed_until', '_waits'))
  if is_parked(status, delayed_until, waits) then return replace_parked(job, where, fields) end
  if token or status ~= STATUSES.WAITING and status ~= STATUSES.DELAYED then
    return 'running', {pk = pk}, token and string.sub(where.replaces, 1, 7) == 'follow '
  end
  local conflict = not_unique(model, fields, pk)
  if conflict then
    return 'not unique', conflict
  end

  local due, followed = where.due, string.match(follows or '', '^%S+')
  if followed and end_of_followed(model, followed) then due = follow(model, followed, due, fields) end
  local base = prepare_place(where.model, where.name, where.priority, due)
  local changes = placed(replacement(model, where.replaces, fields), where.priority, due, base)
  probe_indexes(model, pk, changes)
  if known then
    probe('LLEN', known .. ':waiting')
    probe('ZCARD', known .. ':delayed')
  end
  local keeps_place = known == base and status == STATUSES.WAITING and changes.status == status and not where.prepend
  local was_delayed = status == STATUSES.DELAYED and known and redis.call('ZREM', known .. ':delayed', job.ident) == 1
  if not (keeps_place or was_delayed) then unplace(where.model, where.name, job) end
  if keeps_place and model.limits then sort_again(base, job, changes) end
  update(model, pk, changes)
  if not keeps_place then push(base, job.ident, changes.status, due, where.prepend) end
  return 'replaced', {pk = pk}
end

local function add(model, identifier, where, fields, reserve, reserved_pk)
  local existing, is_ending = other_queued({model = model}, identifier)
  if existing and not is_ending then
    if not where.replaces then return move_up(model, existing, where) end
    local outcome, reply, is_to_follow = replace_queued(model, existing, where, fields)
    if not is_to_follow then return outcome, reply end
  end
  local unique_for = fields._unique_for or model.defaults._unique_for
  local ended = unique_for and throttled_by(model, identifier, unique_for)
  if ended then
    return 'throttled', {pk = ended}
  end
  fields.identifier = identifier
  local conflict = not_unique(model, fields)
  if conflict then
    return 'not unique', conflict
  end
  local pk = reserved_pk or new_pk(model)
  if reserve then
    return 'reserved', {pk = pk}
  end

  fields.added = now_text()
  local due, base = where.due, where.base
  if existing then due, base = follow(model, existing, where.due, fields), nil end
  if where.custom then
    fields.queued = '1'
    create(model, pk, fields, reserved_pk)
  else
    base = base or prepare_place(where.model, where.name, where.priority, due)
    if not existing then where.base = base end
    if model.limits and where.prepend then set_place(fields, true) end
    create(model, pk, placed(fields, where.priority, due, base), reserved_pk)
    push(base, model.path .. ':' .. pk, fields.status, due, where.prepend)
  end
  if existing then redis.call('HSET', hash_key(model, existing), '_followed_by', pk) end
  return 'added', {pk = pk}
end
