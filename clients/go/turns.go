package pinfold

import (
	"context"
	"strings"

	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// Turn is a turn that was begun, or taken over from an earlier driver (Resumed).
type Turn struct {
	ID         string
	Prompts    []*pb.Prompt
	DeliveryID string
	Resumed    bool
	// Draft is how far the answer has come, for a TurnFunc to set. What is here when the agent is
	// ended is kept as the partial text of the call that it is.
	Draft string
}

// Text is all prompts as one text.
func (t *Turn) Text() string {
	texts := make([]string, len(t.Prompts))
	for i, prompt := range t.Prompts {
		texts[i] = prompt.GetText()
	}
	return strings.Join(texts, "\n\n")
}

// Taken is what arrived during a turn.
type Taken struct {
	Prompts    []*pb.Prompt
	DeliveryID string
	// TurnCancelled: a user ended the turn; call NextTurn.
	TurnCancelled bool
}

// NextTurn waits for activating input and begins a turn with it. It is nil after WithTimeout.
//
// Prompts are delivered again until they are acknowledged: each of NextTurn, TakePrompts and
// EndTurn acknowledges the last delivery that this handle was given.
func (a *Agent) NextTurn(ctx context.Context, options ...TurnOption) (*Turn, error) {
	request := &pb.NextTurnRequest{AgentId: a.ID, AcknowledgeDeliveryId: a.lastDelivery()}
	for _, option := range options {
		option.applyTurn(request)
	}
	response, err := unary(ctx, a.client, parks, a.client.agents.NextTurn, request)
	if err != nil || response.GetTurnId() == "" {
		return nil, err
	}
	a.delivered(response.GetDeliveryId())
	return &Turn{
		ID:         response.GetTurnId(),
		Prompts:    response.GetPrompts(),
		DeliveryID: response.GetDeliveryId(),
		Resumed:    response.GetResumed(),
	}, nil
}

// TakePrompts is what has arrived during the turn, at once.
func (a *Agent) TakePrompts(ctx context.Context) (*Taken, error) {
	response, err := unary(ctx, a.client, quick, a.client.agents.TakePrompts,
		&pb.TakePromptsRequest{AgentId: a.ID, AcknowledgeDeliveryId: a.lastDelivery()})
	if err != nil {
		return nil, err
	}
	a.delivered(response.GetDeliveryId())
	return &Taken{
		Prompts:       response.GetPrompts(),
		DeliveryID:    response.GetDeliveryId(),
		TurnCancelled: response.GetTurnCancelled(),
	}, nil
}

// EndTurn ends the turn with the agent's answer, which its watchers get.
func (a *Agent) EndTurn(ctx context.Context, turnID, answer string) error {
	return a.endTurn(ctx, turnID, answer, false)
}

// endTurn: a draft is how far the answer came, and means something only if the agent is being ended.
func (a *Agent) endTurn(ctx context.Context, turnID, answer string, draft bool) error {
	_, err := unary(ctx, a.client, quick, a.client.agents.EndTurn, &pb.EndTurnRequest{
		AgentId:               a.ID,
		TurnId:                turnID,
		Answer:                answer,
		AcknowledgeDeliveryId: a.lastDelivery(),
		Draft:                 draft,
	})
	if err == nil {
		a.delivered("")
	}
	return err
}

func (a *Agent) lastDelivery() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.delivery
}

func (a *Agent) delivered(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.delivery = id
}

// CancelTurn cancels the turn and its calls, as a user. It returns how many calls.
func (a *Agent) CancelTurn(ctx context.Context, reason string) (int, error) {
	response, err := unary(ctx, a.client, quick, a.client.agents.CancelTurn,
		&pb.CancelTurnRequest{AgentId: a.ID, Reason: reason})
	return int(response.GetCancelledCalls()), err
}
