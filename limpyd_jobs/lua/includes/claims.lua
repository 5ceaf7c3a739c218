-- Claims: who may run a job, for how long, and what is next.

--@include shared_key
--@include clock
--@include records

-- Splits an ident, 'myapp.jobs.MyJob:12', in its class path and pk; nil if it is none.
local function parse_ident(ident)
  return string.match(ident, '^([^:]+%.[^:.]+):([^:]+)$')
end

-- The models of the job classes that a caller knows, given as text with the class path and the model in each line: a
-- table that looks a path up when it is asked for, as most are not.
local function classes_from(text)
  return setmetatable({}, {__index = function(classes, path)
    local _, before = string.find(text, '\n' .. path .. ' ', 1, true)
    classes[path] = before and string.sub(text, before + 1, string.find(text, '\n', before, true) - 1) or false
    return classes[path]
  end})
end

local function job_of(model, ident)
  local _, pk = parse_ident(ident)
  model = model_of(model)
  return {model = model, pk = pk, ident = ident, key = hash_key(model, pk)}
end

local CLAIM_FIELDS = {'status', '_claim_token', 'queued', '_queue_key', '_rescues', '_last_claim'}

-- What a job says of itself that matters when a claim ends, as it was when this was called first.
local function claim_of(job)
  if not job.known then
    job.known = {}
    for i, value in ipairs(redis.call('HMGET', job.key, unpack(CLAIM_FIELDS))) do
      job.known[CLAIM_FIELDS[i]] = value
    end
  end
  return job.known
end

-- Whether the token is that of a worker whose application may still put the job elsewhere, before it runs: then the job
-- is in no list, and has a lease, but otherwise is as it was while it waited.
local function is_in_hand(token)
  return token and string.sub(token, 1, 5) == 'hand:'
end

-- The token of one of several claims that a worker makes at once.
local function one_of_several(token, number)
  return token .. '/' .. number
end

local function is_one_of_several(token)
  return string.find(token, '/', 1, true) ~= nil
end

-- Which one of the claims of a call that is, or nil; 0 if it is the only one.
local function number_among(token, other)
  return other == token and 0 or string.sub(other, 1, #token + 1) == token .. '/' and tonumber(string.sub(other, #token + 2))
end

-- The reply to a caller who may not end the claim on a job, as it does not hold it, or the job was deleted; nil to
-- one who may. An empty token stands for a job that nobody claimed.
local function refusal(job, token)
  local held = claim_of(job)._claim_token or ''
  if held == '' and redis.call('EXISTS', job.key) == 0 then
    return {'gone'}
  elseif held ~= token then
    return {'refused'}
  end
end

-- Changes a job so that nobody has a claim on it any more. With the token of the caller, it is kept, for the caller to
-- be told the same if it asks again.
local function end_claim(base, job, changes, token)
  probe('ZCARD', base .. ':_running')
  changes._claim_token = false
  changes._rescues = false
  changes._last_claim = token and token ~= '' and token or false
  local known = claim_of(job)
  update(job.model, job.pk, changes, known)
  send('ZREM', base .. ':_running', job.ident)
  if known._queue_key and known._queue_key ~= base then
    redis.pcall('ZREM', known._queue_key .. ':_running', job.ident)
  end
end

-- The lease of a job that is running without a claim, given the seconds of one with a claim, and those to leave to a
-- worker of version 2. That sets the start with the status: without one, somebody else set the status, maybe to run the
-- job himself, who is left ten leases.
local function lease_without_claim(start, lease, unclaimed_lease)
  return start and unclaimed_lease or 10 * lease
end

-- The tries of a job once the last one does not count.
local function one_try_less(tries)
  local left = (tonumber(tries) or 0) - 1
  return left > 0 and string.format('%d', left)
end

-- Keeps an ident that no worker can do anything with where one can look at it: the last thousand of each queue.
local function set_aside(base, ident)
  redis.call('RPUSH', base .. ':_quarantine', ident)
  redis.call('LTRIM', base .. ':_quarantine', -1000, -1)
end

local function text_of_error(failure)
  return type(failure) == 'table' and failure.err or tostring(failure)
end

-- Whether a write failed for no fault of the record, but as Redis accepts none for now, or none of this user.
local function is_refused_by_redis(failure)
  local text = text_of_error(failure)
  for _, reason in ipairs({'MISCONF', 'NOREPLICAS', 'READONLY', 'OOM', 'NOPERM', 'ACL failure', "can't run this"}) do
    if string.find(text, reason, 1, true) then
      return true
    end
  end
end

local function is_broken(key)
  return redis.call('TYPE', key).ok ~= 'hash' and redis.call('EXISTS', key) == 1
end

-- Whether the jobs of a name, in the queue of some keys, have to rest: the names stand in a set beside the queues.
local function is_paused(base, name)
  return name and redis.pcall('SISMEMBER', shared_key(base, 'paused'), name) == 1
end

-- The name and priority of the queue of some keys, if a claim can be recorded there; else nil.
local function sound_queue(base)
  local queue = redis.pcall('HMGET', base .. ':hash', 'name', 'priority')
  local exists = not queue.err and (queue[1] or queue[2] or redis.call('EXISTS', base .. ':hash') == 1)
  if exists and (probed[base .. ':_running'] or type(redis.pcall('ZCARD', base .. ':_running')) == 'number') then
    return queue
  end
end

local open_queues = {}

-- The same, unless its jobs have to rest; asked for once, as nothing of that changes while jobs are claimed.
local function open_queue(base)
  if open_queues[base] == nil then
    local queue = sound_queue(base)
    open_queues[base] = queue and not is_paused(base, queue[1]) and queue or false
  end
  return open_queues[base]
end

local RETRY_FIELDS = {'_retry_policy', '_uncounted_tries', 'added', '_requeued_at'}

-- What the worker needs to decide whether the job is tried again if it fails: the policy of the job, how many of its
-- tries do not count, since when its age does. `first` is where RETRY_FIELDS begin in values of the hash.
local function retry_of(hash, first)
  return {hash[first] or '', hash[first + 1] or '', hash[first + 3] or hash[first + 2] or ''}
end

local last_queues = {}

-- The last pk of a queue, of the model of the queue of some keys, for workers to see that there are new ones; or ''.
local function last_queue(base)
  if not last_queues[base] then
    local pk = redis.pcall('GET', shared_key(base, 'max_pk'))
    last_queues[base] = type(pk) == 'string' and pk or ''
  end
  return last_queues[base]
end

-- Claims a job that was taken from the waiting list of a sound queue, or takes it, if it waits indeed. The reply is
-- documented in claim.lua. The ident may name the class by an old path; what is kept names it by its own.
--
-- With a number it is one of several that a worker claims at once: then this is part of the token. A job that was
-- rescued comes alone, as it may be what kills its workers: it is left in its list unless its number is 1. The lease of
-- the last one lapses first: so they are rescued in their order, and Redis finds the place of each without a search.
local function claim(key, queue, pk, model, token, lease, is_first, number)
  local base = string.sub(key, 1, -9)
  local job = {model = model, pk = pk, ident = model.path .. ':' .. pk, key = hash_key(model, pk)}
  local hash = redis.call(
    'HMGET', job.key, 'status', 'identifier', 'tries', 'queued', '_job_timeout', '_last_claim', '_rescues',
    unpack(RETRY_FIELDS))
  local status, identifier, is_alone = hash[1], hash[2] or '', hash[7]

  if not status and redis.call('EXISTS', job.key) == 0 then
    if is_first then pop(key) end
    return {'gone', key, job.ident}
  end
  if hash[4] ~= '1' then end_batch() end
  local is_second = hash[4] ~= '1' and other_queued(job, identifier)
  if status ~= 'w' or is_second then
    if is_first then pop(key) end
    return {'found', key, job.ident, status or '', identifier, queue[1] or '', queue[2] or ''}
  end
  if number and is_alone and number > 1 then
    return {'nothing'}
  end
  token = number and not is_alone and one_of_several(token, number) or token
  local start, tries = now_text(), string.format('%d', (tonumber(hash[3]) or 0) + 1)
  local changes = {queued = '1', _queue_key = base, _claim_token = token, _last_claim = false}
  if not is_in_hand(token) then
    changes.status, changes.start, changes.tries = 'r', start, tries
  end
  update(model, pk, changes, {status = status, queued = hash[4], _last_claim = hash[6]})
  send('ZADD', base .. ':_running', score(now() + lease * 1000000 - (number or 0)), job.ident)
  if is_first then pop(key) end
  return {
    'claimed', key, job.ident, status, identifier, queue[1] or '', queue[2] or '', start, tries, hash[5] or '',
    retry_of(hash, 8), last_queue(base), reindex,
  }, token
end

local has_deferrals = {}

local function forget_deferrals(base, ident)
  if has_deferrals[base] == nil then
    has_deferrals[base] = redis.call('EXISTS', base .. ':_deferrals') == 1
  end
  if has_deferrals[base] then
    redis.pcall('HDEL', base .. ':_deferrals', ident)
  end
end

-- Claims a job whose hash may be none: then it is set aside. If what all jobs share is broken, the reply is an error.
local function claim_safely(key, queue, ident, model, token, lease, is_first, number)
  local _, pk = parse_ident(ident)
  forget_deferrals(string.sub(key, 1, -9), ident)
  model = model_of(model)
  local ok, reply, name = pcall(claim, key, queue, pk, model, token, lease, is_first, number)
  if ok then
    keep_pending()
    return reply, name
  end
  drop_pending()
  reindex = {}
  if not is_broken(hash_key(model, pk)) then
    if not is_first then redis.call('LPUSH', key, ident) end
    return {err = text_of_error(reply)}
  end
  if is_first then pop(key) end
  set_aside(string.sub(key, 1, -9), ident)
  return {'broken', key, ident, text_of_error(reply)}
end

-- The waiting lists of a call, given as one text with a key in each line: a function that returns them, taken apart up
-- to an index. A worker may have hundreds, and finds its job in one of the first.
local function lists_from(text)
  local keys, position = {}, 1
  return function(last)
    while #keys < last and position <= #text do
      local line_end = string.find(text, '\n', position, true) or #text + 1
      keys[#keys + 1] = string.sub(text, position, line_end - 1)
      position = line_end + 1
    end
    return keys
  end
end

-- The delayed sets beside these lists, in the same way.
local function delayed_sets_of(lists)
  local sets = {}
  return function(last)
    local keys = lists(last)
    for i = #sets + 1, #keys do
      sets[i] = string.sub(keys[i], 1, -9) .. ':delayed'
    end
    return sets
  end
end

-- How many lists to look into, and how many of the others to ask about at once.
local FEW, STRETCH = 4, 64

-- Where the first key is that exists, of some of which one does.
local function first_existing(keys, first, last)
  while first < last do
    local middle = math.floor((first + last) / 2)
    if redis.call('EXISTS', unpack(keys, first, middle)) > 0 then last = middle else first = middle + 1 end
  end
  return first
end

-- Where the first list is, from an index on, that may have a job; nil if there is none.
local function next_filled(lists, first)
  if first <= FEW then
    return lists(first)[first] and first
  end
  while lists(first)[first] do
    local keys = lists(first + STRETCH - 1)
    local last = math.min(first + STRETCH - 1, #keys)
    if redis.call('EXISTS', unpack(keys, first, last)) > 0 then
      return first_existing(keys, first, last)
    end
    first = last + 1
  end
end

-- Claims the first job of a waiting list; nil if it has none. A list of no sound queue, or no list, has none, nor does
-- that of a paused queue.
local function claim_from(key, token, lease, classes, number)
  local ident, base = first_of(key), string.sub(key, 1, -9)
  local queue = type(ident) == 'string' and open_queue(base)
  if not queue then
    return nil
  end
  local path = parse_ident(ident)
  if not path then
    pop(key)
    set_aside(base, ident)
    return {'garbage', key, ident}
  elseif not classes[path] then
    return {'unknown', key, ident}
  end
  return claim_safely(key, queue, ident, classes[path], token, lease, true, number)
end

-- Nothing is added to the lists before this one while a script runs: they had no job.
local first_list = 1

-- Claims the first job of the first waiting list that has one.
local function claim_first(lists, token, lease, classes, number)
  local i = next_filled(lists, first_list)
  while i do
    first_list = i
    local reply, name = claim_from(lists(i)[i], token, lease, classes, number)
    if reply then
      return reply, name
    end
    i = next_filled(lists, i + 1)
  end
  return {'nothing'}
end

-- Claims several jobs, up to the first that is none to run, and that is the last: {token, reply}…
local function claim_several(lists, limit, token, lease, classes)
  local found, name, reply = {}
  begin_batch()
  repeat
    reply, name = claim_first(lists, token, lease, classes, #found + 1)
    if not reply.err and reply[1] ~= 'nothing' then
      found[#found + 1] = {name or '', reply}
    end
    reindex = {}
  until #found >= limit or not name or name == token
  end_batch()
  return found
end

-- The claim that a finishing worker asks for in the same call, with ARGV from an index on: lists, token, lease, classes.
local function claim_next(first)
  if not ARGV[first] then
    return {'nothing'}
  end
  local lists, token, lease = lists_from(ARGV[first]), ARGV[first + 1], tonumber(ARGV[first + 2])
  local reply = claim_first(lists, token, lease, classes_from(ARGV[first + 3]))
  return reply.err and {'nothing'} or reply
end

-- The jobs that were claimed with that token, by a call whose reply was lost, as claim_several returns them, and in its
-- order.
local function all_claimed_with(lists, token, classes)
  local found = {}
  for _, key in ipairs(lists(math.huge)) do
    local base = string.sub(key, 1, -9)
    for _, ident in ipairs(redis.call('ZRANGE', base .. ':_running', 0, -1)) do
      local path = parse_ident(ident)
      local job = path and classes[path] and job_of(classes[path], ident)
      local hash = job and redis.call(
        'HMGET', job.key, '_claim_token', 'identifier', 'start', 'tries', '_job_timeout', unpack(RETRY_FIELDS))
      if hash and hash[1] and number_among(token, hash[1]) then
        local queue = redis.call('HMGET', base .. ':hash', 'name', 'priority')
        found[#found + 1] = {hash[1], {
          'claimed', key, ident, 'w', hash[2] or '', queue[1] or '', queue[2] or '', hash[3] or '', hash[4] or '',
          hash[5] or '', retry_of(hash, 6), last_queue(base), {},
        }}
      end
    end
  end
  table.sort(found, function(a, b) return number_among(token, a[1]) < number_among(token, b[1]) end)
  return found
end

-- The one job that was claimed with that token, by a call whose reply was lost; nil if there is none.
local function claimed_with(lists, token, classes)
  local found = all_claimed_with(lists, token, classes)[1]
  return found and found[2]
end

-- The reply to a caller who ended its claim already, and asks again, as the first reply was lost; nil to others. The
-- next claim may be on the same job, once more.
-- `outcome` is the one of a job that was put back in a queue; `first` is where the next claim begins in ARGV.
local function ended_before(job, token, outcome, first)
  local hash = redis.call('HMGET', job.key, '_last_claim', 'status', 'end', 'delayed_until', '_claim_token')
  local next_token = ARGV[first + 1]
  local is_next = next_token and hash[5] == next_token
  if token == '' or hash[1] ~= token and not is_next then
    return nil
  end
  local is_back, is_failed = hash[2] == 'w' or hash[2] == 'd' or is_next, hash[2] == 'e'
  outcome = is_back and outcome or is_failed and 'error' or 'done'
  local upcoming = next_token and claimed_with(lists_from(ARGV[first]), next_token, classes_from(ARGV[first + 3]))
  return cjson.encode({outcome, hash[3] or '', is_back and hash[4] or '', {}, upcoming or claim_next(first)})
end

-- The reply of every script that ends a claim, as JSON, which clients read much faster than so many values; `first` is
-- where the next claim begins in ARGV.
local function ended(outcome, finish, delayed_until, first)
  local changes = reindex
  reindex = {}
  return cjson.encode({outcome, finish, delayed_until, changes, claim_next(first)})
end
