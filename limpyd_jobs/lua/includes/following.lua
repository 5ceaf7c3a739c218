-- Following: a job that was added while another one of its identifier still ran: because that was canceled, or because the
-- caller said so. It is delayed until that has ended. Its field `_follows` has the pk of the other one, and the date that it was
-- to be delayed until, if any; the field `_followed_by` of the other one has its pk. The step that ends the claim on the other
-- one lets it go. If another step does, it is due when the lease was to end, and whoever would claim it looks again. The other
-- one never goes back to a queue, even if its code or its worker gave it another status since, or it is to be tried again.

--@include signals
--@include records

-- For how long to look away if the other job has no lease: microseconds.
local LOOK_AGAIN = 60000000

-- When to look again whether a job that may be followed has ended, as due_at does; nil if it has.
--@rarely
local function end_of_followed(model, pk)
  local status, queued, queue_key, token = unpack(redis.call(
    'HMGET', hash_key(model, pk), 'status', 'queued', '_queue_key', '_claim_token'))
  local goes_on = queued == '1' and (token or status == STATUSES.CANCELED)
  if not goes_on or has_lapsed(model, pk, queue_key) then return nil end
  local lease = queue_key and redis.pcall('ZSCORE', queue_key .. ':_running', model.path .. ':' .. pk)
  local at = type(lease) == 'string' and math.ceil(tonumber(lease) * 1000000) or now() + LOOK_AGAIN
  return {at = at, text = date_text(at)}
end

-- Whether a job really follows the one that has its pk.
--@rarely
local function has_as_follower(model, pk, follower)
  local follows, queued = unpack(redis.call('HMGET', hash_key(model, follower), '_follows', 'queued'))
  return queued == '1' and string.match(follows or '', '^%S+') == pk
end

-- Ends a job that another one follows which is about to begin: its lease lapsed, or it went back to a queue.
--@rarely
local function end_followed(model, pk, follower)
  local queued, followed_by, queue_key = unpack(redis.call(
    'HMGET', hash_key(model, pk), 'queued', '_followed_by', '_queue_key'))
  if queued ~= '1' or followed_by ~= follower then return end
  update(model, pk, {
    status = STATUSES.CANCELED, queued = false, _claim_token = false, _rescues = false, _last_claim = false,
    _followed_by = false,
  })
  if queue_key then redis.pcall('ZREM', queue_key .. ':_running', model.path .. ':' .. pk) end
end

-- The date until which a job is delayed that follows another one: that of its own delay, if it is later.
--@rarely
local function due_after(model, pk, due)
  local ends = end_of_followed(model, pk) or {at = now() + LOOK_AGAIN, text = date_text(now() + LOOK_AGAIN)}
  return due and due.at > ends.at and due or ends
end

-- Lets a job go that follows one which ended.
--@rarely
local function unfollow(model, followed, pk)
  local status, follows, base = unpack(redis.call('HMGET', hash_key(model, pk), 'status', '_follows', '_queue_key'))
  local other, text = string.match(follows or '', '^(%S+) ?(.*)$')
  local ident = model.path .. ':' .. pk
  if status ~= STATUSES.DELAYED or other ~= followed or not base then return end
  probe('LLEN', base .. ':waiting')
  probe('ZCARD', base .. ':delayed')
  local due = parse_date(text)
  if due and due > now() then
    update(model, pk, {delayed_until = text, _follows = false})
    redis.call('ZADD', base .. ':delayed', score(due), ident)
  else
    update(model, pk, {status = STATUSES.WAITING, delayed_until = false, _follows = false})
    redis.call('ZREM', base .. ':delayed', ident)
    redis.call('RPUSH', base .. ':waiting', ident)
    notify_worker(base)
  end
end
