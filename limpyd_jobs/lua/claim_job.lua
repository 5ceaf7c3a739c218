-- verb: claim job
-- from: new, waiting, delayed or running
-- to: running
-- what: a given job, wherever it stands: a delayed one if it is due, a running one if its lease lapsed
--
-- ARGV[1]  job model
-- ARGV[2]  ident
-- ARGV[3]  token of the claim, never used before
-- ARGV[4]  lease: seconds
-- ARGV[5]  queue model
-- ARGV[6]  name of the queue of a job that stands in none, or ''
--
-- {'claimed', …}  as in claim.lua; also to the holder of this claim, whose first reply was lost: the lease begins anew.
--                 {'found'} and {'nothing'}, which the same function can answer, do not occur
-- In all other cases nothing is changed:
-- {'taken', token or '', end of the lease or ''}    somebody else holds it
-- {'not to be run', status, delayed until or ''}
-- {'already queued', pk of the queued job of the same identifier}
-- {'no queue'}                                      it stands in none, and no name is given
-- {'other queue model', queue: model name and pk}
-- {'gone'}                                          also if it is deleted at this moment

--@include taking
--@include places

local job, token, lease = job_of(ARGV[1], ARGV[2]), ARGV[3], tonumber(ARGV[4])
local queue_model, queue_name = model_of(ARGV[5]), ARGV[6]

if is_gone(job.model, job.pk) then
  return {'gone'}
end

local hash = redis.call(
  'HMGET', job.key, 'status', 'identifier', 'priority', 'queued', 'tries', 'delayed_until', '_queue_key',
  '_claim_token', '_rescues')
local status, known, holder = hash[1], hash[7], hash[8]
local is_again, is_held = holder == token and status == 'r', holder or status == 'r'

local function lease_end()
  local found = known and redis.pcall('ZSCORE', known .. ':_running', job.ident)
  return type(found) == 'string' and found
end

local function waits()
  local is_due = status == 'd' and not holder and (parse_date(hash[6]) or 0) <= now()
  return not status or status == 'w' or is_due
end

-- Why the job cannot be claimed, as a reply; nil if it can.
local function reason_against()
  local ends = is_held and lease_end()
  if is_held and not (ends and tonumber(ends) <= now() / 1000000) then
    return {'taken', holder or '', ends or ''}
  elseif not waits() and status ~= 'r' then
    return {'not to be run', status, hash[6] or ''}
  elseif known and string.sub(known, 1, #queue_model.name + 1) ~= queue_model.name .. ':' then
    return {'other queue model', known}
  end
  local other = hash[4] ~= '1' and hash[2] and other_queued(job, hash[2])
  if other then
    return {'already queued', other}
  end
end

-- The queue of a job that stands in none: the one it was in, or the one of the given name; nil if there is none.
local function home()
  if known and sound_queue(known) then
    return known
  end
  return queue_name ~= '' and queue_model.name .. ':' .. find_or_create_queue(queue_model, queue_name, hash[3] or '0')
    or nil
end

-- A job that does not wait is claimed as if it did.
local function let_it_wait()
  local tries, rescues = hash[5], hash[9]
  if is_again then
    tries = one_try_less(tries)
  elseif status == 'r' then
    rescues = string.format('%d', (tonumber(rescues) or 0) + 1)
  end
  update(job.model, job.pk, {status = 'w', tries = tries, _rescues = rescues})
end

local against = not is_again and reason_against()
if against then
  return against
end
local base = hash[4] == '1' and unplace(queue_model, queue_name, job) or home()
if not base then
  return {'no queue'}
end
probe('ZCARD', base .. ':_running')
if status ~= 'w' then
  let_it_wait()
end
forget_deferrals(base, job.ident)
local queue = redis.call('HMGET', base .. ':hash', 'name', 'priority')
return claim(base .. ':waiting', queue, job.pk, job.model, token, lease, false)
