-- verb: succeed many
-- from: running
-- to: success
-- what: as succeed, for several jobs that ran one after the other; may claim several next jobs
--
-- ARGV[1]  JSON: [[ident, token of the claim, queue: model name and pk, how long ago its code began, and ended:
--          microseconds]…]
-- ARGV[2]  how many jobs to claim at the most
-- ARGV[3]  waiting lists to claim them from: keys, one in a line
-- ARGV[4]  token of the claims, never used before: '/1', '/2'… is added to it, but for one that comes alone
-- ARGV[5]  lease: seconds
-- ARGV[6]  again: '1' if this is sent once more, as the reply was lost; or ''
-- ARGV[7]  the job classes of these jobs, and those known to the caller: class path and job model, one in a line
--
-- JSON: [[what became of each…], [[token, what came out of a waiting list, as in claim.lua]…]], the first being
--   {'done', end, reindex}
--   {'canceled'}    {'delayed'}    {'refused'}    {'gone'}    as in succeed.lua
--   {'failed', error}              something is broken: nothing is changed
--
-- Each is recorded, or not, whatever becomes of the others. Nothing is claimed behind what is no job to run, and a job
-- that was rescued is claimed alone.

--@include successes

local classes = classes_from(ARGV[7])

local function record(row)
  local ident, token, queue, began, ended_at = unpack(row)
  local job = job_of(classes[parse_ident(ident)], ident)
  local start, finish = date_text(now() - began), date_text(now() - ended_at)
  local reply = end_in_success(job, token, queue, {start = start, ['end'] = finish})
  if reply and reply[1] == 'refused' and claim_of(job)._last_claim == token then
    return {'done', redis.call('HGET', job.key, 'end') or '', {}}
  end
  return reply or {'done', finish, reindex}
end

local function record_safely(row)
  reindex = {}
  local ok, reply = pcall(record, row)
  if ok then
    keep_pending()
    return reply
  end
  drop_pending()
  return {'failed', text_of_error(reply)}
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

local endings, limit, lists, token = {}, tonumber(ARGV[2]), lists_from(ARGV[3]), ARGV[4]
begin_batch()
for i, row in ipairs(cjson.decode(ARGV[1])) do
  endings[i] = record_safely(row)
end
end_batch()
reindex = {}

local claimed = ARGV[6] == '1' and all_claimed_with(lists, token, classes) or {}
if limit > 0 and #claimed == 0 then
  claimed = claim_several(lists, limit, token, tonumber(ARGV[5]), classes)
end
return cjson.encode({endings, claimed})
